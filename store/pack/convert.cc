#include "store/pack/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "common/formats/blocks.h"
#include "common/formats/encode.h"
#include "store/pack/finite.h"

namespace moestro::store {
namespace {

void to_f32(DType from, const std::byte* source, float* out, int64_t n) {
  const auto load16 = [source](int64_t i) {
    uint16_t h = 0;
    std::memcpy(&h, source + 2 * i, sizeof h);
    return h;
  };
  switch (from) {
    case DType::kF32: std::memcpy(out, source, static_cast<size_t>(n) * sizeof(float)); return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load16(i));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(load16(i));
      return;
    default:
      MOESTRO_CHECK(is_blocks(from), "no checkpoint format");
      formats::dequantise(from, source, n, out);
  }
}

// Did each finite value stay one? Looked for in the result, where it takes next to no time.
bool stayed_finite(const float* in, DType to, const std::byte* target, int64_t n) {
  if (!find_not_finite(to, {target, static_cast<size_t>(n * dtype_bytes(to))})) return true;
  for (int64_t i = 0; i < n; ++i)
    if (std::isfinite(in[i]) &&
        find_not_finite(to, {target + i * dtype_bytes(to), static_cast<size_t>(dtype_bytes(to))}))
      return false;
  return true;
}

bool from_f32(const float* in, DType to, std::byte* target, int64_t n) {
  uint16_t h = 0;
  switch (to) {
    case DType::kF32: std::memcpy(target, in, static_cast<size_t>(n) * sizeof(float)); return true;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) h = f32_to_bf16(in[i]), std::memcpy(target + 2 * i, &h, sizeof h);
      return stayed_finite(in, to, target, n);
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) h = f32_to_f16(in[i]), std::memcpy(target + 2 * i, &h, sizeof h);
      return stayed_finite(in, to, target, n);
    default: break;
  }
  MOESTRO_CHECK(is_blocks(to), "quantise_row and bf16_in_12::encode are for those");
  return formats::encode(to, in, n, target);
}

}  // namespace

bool convert_values(DType from, const std::byte* source, DType to, std::byte* target, int64_t n) {
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(row_bytes(from, n)));
    return true;
  }
  constexpr int64_t kBlock = 1024;  // whole blocks of every format
  float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t part = std::min(kBlock, n - i);
    to_f32(from, source + row_bytes(from, i), block, part);
    if (!from_f32(block, to, target + row_bytes(to, i), part)) return false;
  }
  return true;
}

}  // namespace moestro::store
