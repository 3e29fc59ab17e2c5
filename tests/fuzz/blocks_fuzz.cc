// fuzz-deps: moestro_base
// fuzz-seconds: 30
// Blocks of any bits: the first byte chooses the format. What find_block_not_finite lets in is finite.

#include <cmath>
#include <vector>

#include "common/check.h"
#include "common/formats/blocks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moestro;
  if (size == 0) return 0;
  const DType d = block_format(data[0] % kBlockFormats);
  const BlockShape shape = block_shape(d);
  const auto count = static_cast<int64_t>(size - 1) / shape.bytes;
  const std::span blocks(reinterpret_cast<const std::byte*>(data) + 1, static_cast<size_t>(count * shape.bytes));
  std::vector<float> numbers(static_cast<size_t>(count * shape.columns));
  formats::dequantise(d, blocks.data(), count * shape.columns, numbers.data());
  const auto bad = formats::find_block_not_finite(d, 0, blocks);
  MOESTRO_CHECK(!bad || *bad < static_cast<size_t>(count), "a block of these");
  for (const float f : numbers) MOESTRO_CHECK(bad || std::isfinite(f), "blocks that were let in are finite");
  return 0;
}
