#include "store/pack/finite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/float16.h"

namespace moestro::store {
namespace {

// A value is not finite if all bits of its exponent are set. Blocks of a fixed size, without a way out of their loop,
// so that the compiler makes vector instructions of them: this reads every byte of a checkpoint.
template <typename Bits, Bits kExponent>
std::optional<size_t> find(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 256;
  const size_t n = bytes.size() / sizeof(Bits);
  Bits block[kBlock];
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = n - begin < kBlock ? n - begin : kBlock;
    if (count < kBlock) std::memset(block, 0, sizeof block);
    std::memcpy(block, bytes.data() + begin * sizeof(Bits), count * sizeof(Bits));
    Bits bad = 0;
    for (size_t i = 0; i < kBlock; ++i) bad |= static_cast<Bits>((block[i] & kExponent) == kExponent);
    if (bad == 0) continue;
    for (size_t i = 0; i < count; ++i)
      if ((block[i] & kExponent) == kExponent) return begin + i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> find_group_not_finite(DType dtype, std::span<const std::byte> parameters) {
  // Of int8 and int4. The largest float has a scale that is rounded up, and is stored as 126 times that.
  constexpr float kLargest[] = {126.0f, 15.0f};
  const auto each = static_cast<size_t>(group_parameters(dtype));
  for (size_t g = 0; g < parameters.size() / (2 * each); ++g) {
    uint16_t stored[2] = {0, 0};
    std::memcpy(stored, parameters.data() + g * 2 * each, 2 * each);
    const float offset = bf16_to_f32(stored[1]);
    const float largest = kLargest[each - 1] * bf16_to_f32(stored[0]) + offset;
    if (!std::isfinite(largest) || !std::isfinite(offset)) return g;
  }
  return std::nullopt;
}

std::optional<size_t> find_exponent_not_finite(std::span<const std::byte> exponents) {
  const auto bad = std::find(exponents.begin(), exponents.end(), std::byte{0xff});
  return bad == exponents.end() ? std::nullopt : std::optional(static_cast<size_t>(bad - exponents.begin()));
}

std::optional<size_t> find_not_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::kF32) return find<uint32_t, 0x7f800000u>(bytes);
  return dtype == DType::kBF16 ? find<uint16_t, 0x7f80u>(bytes) : find<uint16_t, 0x7c00u>(bytes);
}

}  // namespace moestro::store
