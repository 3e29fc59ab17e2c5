// fuzz-deps: moestro_pack
// fuzz-seconds: 30
// The header of a GGUF file: the first 8 bytes of the input say how long the file is. Metadata that are let in are then
// made config.json and tokenizer.json of.

#include <cstring>

#include "common/check.h"
#include "store/pack/gguf_config.h"
#include "store/pack/gguf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moestro::store;
  uint64_t beyond = 0;
  if (size < sizeof beyond) return 0;
  std::memcpy(&beyond, data, sizeof beyond);
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + sizeof beyond, size - sizeof beyond);
  const uint64_t file_size = bytes.size() + beyond % (uint64_t{1} << 48);
  const auto parsed = parse_gguf_header(bytes, file_size, "fuzz");
  if (!parsed || parsed->needs_more) return 0;
  for (const GgufTensor& t : parsed->header.tensors)
    MOESTRO_CHECK(t.type != nullptr && t.bytes <= file_size && t.offset <= file_size - t.bytes,
                  "a tensor that was let in lies in the file");
  (void)gguf_config(parsed->header);
  (void)gguf_tokenizer_files(parsed->header.metadata);
  return 0;
}
