// fuzz-deps: moestro_pack
// fuzz-seconds: 30
// The header of a safetensors file: the first 8 bytes of the input say how long the data after the header is.

#include <cstring>
#include <limits>
#include <string_view>

#include "common/check.h"
#include "store/pack/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  data_bytes %= uint64_t{1} << 48;
  const std::string_view header(reinterpret_cast<const char*>(data) + sizeof data_bytes, size - sizeof data_bytes);
  const uint64_t start = sizeof data_bytes + header.size();
  const auto tensors = moestro::store::parse_safetensors_header(header, start, start + data_bytes, "fuzz");
  if (!tensors) return 0;
  uint64_t sum = 0;
  for (const auto& t : *tensors) {
    MOESTRO_CHECK(t.offset >= start && t.bytes <= start + data_bytes - t.offset,
                  "a tensor that was let in lies in the file");
    sum += t.bytes;
  }
  MOESTRO_CHECK(sum == data_bytes, "tensors that were let in cover the file");
  return 0;
}
