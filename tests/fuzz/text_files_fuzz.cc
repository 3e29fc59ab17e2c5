// fuzz-deps: moestro_store moestro_store_arena
// The text files that a store finds at its start: the arena's directory and the warm set. Half of the time the checksum
// is made to fit.

#include <string>

#include "common/check.h"
#include "store/arena/arena_directory.h"
#include "store/arena/text_file.h"
#include "store/server/warm_set.h"

namespace store = moestro::store;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) text = store::with_checksum(text + "\n");
  if (const auto directory = store::parse_directory(text))
    MOESTRO_CHECK(store::parse_directory(store::serialise_directory(*directory)).is_ok(),
                  "what was let in can be written and read again");
  if (const auto set = store::parse_warm_set(text))
    MOESTRO_CHECK(store::parse_warm_set(store::serialise_warm_set(*set)).is_ok(),
                  "what was let in can be written and read again");
  return 0;
}
