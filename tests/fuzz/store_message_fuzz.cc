// Bytes that reach a store's socket.
// fuzz-deps: moestro_store
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "store/server/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Aligned as a received message is.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto request = moestro::store::parse_request(bytes);
  if (!request && request.status().message().empty()) __builtin_trap();
  return 0;
}
