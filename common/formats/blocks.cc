#include "common/formats/blocks.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "common/float16.h"

namespace moestro::formats {

const int8_t kIQ4NLValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

namespace {

uint16_t half_at(const uint8_t* p) {
  uint16_t h = 0;
  std::memcpy(&h, p, sizeof h);
  return h;
}
float f16_at(const uint8_t* p) { return f16_to_f32(half_at(p)); }

/// 2^(e - 128), half of what an e8m0 scale says: e2m1 values are doubled. Below the smallest normal it is exact, too.
float half_of_e8m0(uint8_t e) { return std::ldexp(1.0f, static_cast<int>(e) - 128); }

/// Nibble of column c of 32, as in q4_0.
int nibble(const uint8_t* q, int c) { return c < 16 ? q[c] & 15 : q[c - 16] >> 4; }

void q4_0(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = f16_at(b) * static_cast<float>(nibble(b + 2, c) - 8);
}

void q5_0(const uint8_t* b, float* out) {
  uint32_t high = 0;
  std::memcpy(&high, b + 2, sizeof high);
  for (int c = 0; c < 32; ++c)
    out[c] = f16_at(b) * static_cast<float>((nibble(b + 6, c) | static_cast<int>(high >> c & 1) << 4) - 16);
}

void q8_0(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = f16_at(b) * static_cast<float>(static_cast<int8_t>(b[2 + c]));
}

void iq4_nl(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = f16_at(b) * static_cast<float>(kIQ4NLValues[nibble(b + 2, c)]);
}

void mxfp4(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = half_of_e8m0(b[0]) * static_cast<float>(kE2M1Doubled[nibble(b + 1, c)]);
}

/// Two bits of column c: of each half of 128 columns, byte c % 32 has columns c % 32, + 32, + 64, + 96.
int two_bits(const uint8_t* q, int c) { return q[c / 128 * 32 + c % 32] >> c % 128 / 32 * 2 & 3; }

void q2_k(const uint8_t* b, float* out) {
  const uint8_t *scales = b, *q = b + 16;
  const float d = f16_at(b + 80), dmin = f16_at(b + 82);
  for (int c = 0; c < 256; ++c) {
    const uint8_t s = scales[c / 16];
    out[c] = d * static_cast<float>(s & 15) * static_cast<float>(two_bits(q, c)) - dmin * static_cast<float>(s >> 4);
  }
}

/// Scale g of 16: the low 4 bits of the first 8 bytes, then their high ones; bits 4, 5 are in the last 4 bytes.
int q3_scale(const uint8_t* packed, int g) {
  const int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4;
  return (low | (packed[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
}

void q3_k(const uint8_t* b, float* out) {
  const uint8_t *high = b, *q = b + 32, *scales = b + 96;
  const float d = f16_at(b + 108);
  for (int c = 0; c < 256; ++c) {
    const int value = two_bits(q, c) - (high[c % 32] >> c / 32 & 1 ? 0 : 4);
    out[c] = d * static_cast<float>(q3_scale(scales, c / 16)) * static_cast<float>(value);
  }
}

/// Of q4_k and q5_k: of each 64 columns, the first 32 are low halves of 32 bytes and the others their high ones.
int nibble_of_64(const uint8_t* q, int c) {
  const uint8_t byte = q[c / 64 * 32 + c % 32];
  return c % 64 < 32 ? byte & 15 : byte >> 4;
}

void q4_k(const uint8_t* b, float* out) {
  const float d = f16_at(b), dmin = f16_at(b + 2);
  for (int c = 0; c < 256; ++c) {
    const auto [scale, minimum] = scale_and_minimum(b + 4, c / 32);
    out[c] = d * static_cast<float>(scale) * static_cast<float>(nibble_of_64(b + 16, c)) -
             dmin * static_cast<float>(minimum);
  }
}

void q5_k(const uint8_t* b, float* out) {
  const float d = f16_at(b), dmin = f16_at(b + 2);
  for (int c = 0; c < 256; ++c) {
    const auto [scale, minimum] = scale_and_minimum(b + 4, c / 32);
    const int q = nibble_of_64(b + 48, c) | (b[16 + c % 32] >> c / 32 & 1) << 4;
    out[c] = d * static_cast<float>(scale) * static_cast<float>(q) - dmin * static_cast<float>(minimum);
  }
}

void q6_k(const uint8_t* b, float* out) {
  const float d = f16_at(b + 208);
  for (int c = 0; c < 256; ++c) {
    // Of each half of 128 columns, byte c % 64 has columns c % 64 and + 64.
    const uint8_t byte = b[c / 128 * 64 + c % 64];
    const int low = c % 128 < 64 ? byte & 15 : byte >> 4;
    const int q = (low | two_bits(b + 128, c) << 4) - 32;
    out[c] = d * static_cast<float>(static_cast<int8_t>(b[192 + c / 16])) * static_cast<float>(q);
  }
}

using BlockFn = void (*)(const uint8_t*, float*);

BlockFn block_function(DType d) {
  switch (d) {
    case DType::kQ4_0: return q4_0;
    case DType::kQ5_0: return q5_0;
    case DType::kQ8_0: return q8_0;
    case DType::kQ2K: return q2_k;
    case DType::kQ3K: return q3_k;
    case DType::kQ4K: return q4_k;
    case DType::kQ5K: return q5_k;
    case DType::kQ6K: return q6_k;
    case DType::kIQ4NL: return iq4_nl;
    case DType::kMXFP4: return mxfp4;
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kInt8:
    case DType::kInt4:
    case DType::kBF16In12:
    case DType::kMixed: break;
  }
  return nullptr;
}

/// Where a block has its f16 numbers: one or two that are adjacent.
struct Halves {
  uint64_t at = 0, count = 1;
};
Halves halves_of(DType d) {
  switch (d) {
    case DType::kQ2K: return {80, 2};
    case DType::kQ3K: return {108, 1};
    case DType::kQ4K:
    case DType::kQ5K: return {0, 2};
    case DType::kQ6K: return {208, 1};
    case DType::kMXFP4: return {0, 0};
    default: return {0, 1};
  }
}

}  // namespace

ScaleAndMinimum scale_and_minimum(const uint8_t* packed, int g) {
  if (g < 4) return {static_cast<uint8_t>(packed[g] & 63), static_cast<uint8_t>(packed[g + 4] & 63)};
  return {static_cast<uint8_t>((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4),
          static_cast<uint8_t>(packed[g + 4] >> 4 | packed[g] >> 6 << 4)};
}

void dequantise(DType d, const std::byte* row, int64_t cols, float* out) {
  const BlockFn block = block_function(d);
  MOESTRO_CHECK(block != nullptr, "a format of blocks");
  const BlockShape shape = block_shape(d);
  for (int64_t c = 0; c < cols; c += shape.columns, row += shape.bytes)
    block(reinterpret_cast<const uint8_t*>(row), out + c);
}

std::optional<size_t> find_block_not_finite(DType d, uint64_t at, std::span<const std::byte> bytes) {
  constexpr uint16_t kExponent = 0x7c00;
  constexpr uint8_t kLargestE8M0 = 252;  // with it, the largest value of e2m1 is still finite
  const auto block = static_cast<uint64_t>(block_shape(d).bytes);
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const Halves halves = halves_of(d);
  const uint64_t end = at + bytes.size();
  for (uint64_t i = at / block; i * block < end; ++i) {
    const auto within = [&](uint64_t first, uint64_t count) { return first >= at && first + count <= end; };
    if (d == DType::kMXFP4 && within(i * block, 1) && p[i * block - at] > kLargestE8M0) return i;
    for (uint64_t h = 0; h < halves.count; ++h) {
      const uint64_t half = i * block + halves.at + 2 * h;
      if (within(half, 2) && (half_at(p + (half - at)) & kExponent) == kExponent) return i;
    }
  }
  return std::nullopt;
}

}  // namespace moestro::formats
