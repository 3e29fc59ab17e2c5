#include "store/pack/fit_int2.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/float16.h"
#include "store/pack/fit_int4.h"

namespace moestro::store {
namespace {

constexpr int64_t kColumns = block_shape(DType::kInt2).columns, kBytes = block_shape(DType::kInt2).bytes;
static_assert(kColumns == kQuantGroup);

bool is_fittable(const float* block) {
  for (int64_t i = 0; i < kColumns; ++i)
    if (!std::isfinite(block[i])) return false;
  const auto [low, high] = std::minmax_element(block, block + kColumns);
  return std::isfinite(*high - *low) && std::isfinite(bf16_to_f32(f32_to_bf16(*low)));
}

/// False: next to the largest float, scale and offset, rounded up to bf16, could say infinity.
bool store_block(const Int4Fits& fits, int64_t lane, std::byte* block) {
  const float scale = fits.scale[lane], offset = fits.offset[lane];
  if (!std::isfinite(offset) || !std::isfinite(scale * kFitInt2.most + offset)) return false;
  const uint16_t parameters[] = {f32_to_bf16(scale), f32_to_bf16(offset)};
  std::memset(block, 0, kBytes);
  std::memcpy(block, parameters, sizeof parameters);
  for (int64_t i = 0; i < kColumns; ++i)
    block[4 + i % 16] |= static_cast<std::byte>(static_cast<unsigned>(fits.q[i][lane]) << i / 16 * 2);
  return true;
}

}  // namespace

bool make_int2(const float* numbers, int64_t n, std::byte* blocks) {
  Int4Fits fits;
  for (int64_t first = 0; first < n; first += kFitLanes * kColumns) {
    const int64_t count = std::min(kFitLanes, (n - first) / kColumns);
    for (int64_t b = 0; b < kFitLanes; ++b) {
      const float* const block = numbers + first + std::min(b, count - 1) * kColumns;  // the last one fills all lanes
      if (!is_fittable(block)) return false;
      for (int64_t i = 0; i < kColumns; ++i) fits.values[i][b] = block[i];
    }
    fit_int4(fits, kFitInt2);
    for (int64_t b = 0; b < count; ++b, blocks += kBytes)
      if (!store_block(fits, b, blocks)) return false;
  }
  return true;
}

}  // namespace moestro::store
