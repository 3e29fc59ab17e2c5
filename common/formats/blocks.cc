#include "common/formats/blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

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
  const float d = f16_at(b);  // once: the compiler cannot know that `out` is elsewhere
  for (int c = 0; c < 32; ++c) out[c] = d * static_cast<float>(nibble(b + 2, c) - 8);
}

void q4_1(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = f16_at(b) * static_cast<float>(nibble(b + 4, c)) + f16_at(b + 2);
}

/// Nibble and bit 4 of column c: q5_0 and q5_1 from their bits on.
int five_bits(const uint8_t* b, int c) {
  uint32_t high = 0;
  std::memcpy(&high, b, sizeof high);
  return nibble(b + 4, c) | static_cast<int>(high >> c & 1) << 4;
}

void q5_0(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  for (int c = 0; c < 32; ++c) out[c] = d * static_cast<float>(five_bits(b + 2, c) - 16);
}

void q5_1(const uint8_t* b, float* out) {
  for (int c = 0; c < 32; ++c) out[c] = f16_at(b) * static_cast<float>(five_bits(b + 4, c)) + f16_at(b + 2);
}

void q8_0(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  for (int c = 0; c < 32; ++c) out[c] = d * static_cast<float>(static_cast<int8_t>(b[2 + c]));
}

void iq4_nl(const uint8_t* b, float* out) {
  const float d = f16_at(b);
  for (int c = 0; c < 32; ++c) out[c] = d * static_cast<float>(kIQ4NLValues[nibble(b + 2, c)]);
}

void mxfp4(const uint8_t* b, float* out) {
  const float half = half_of_e8m0(b[0]);
  for (int c = 0; c < 32; ++c) out[c] = half * static_cast<float>(kE2M1Doubled[nibble(b + 1, c)]);
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

void iq4_xs(const uint8_t* b, float* out) {
  uint16_t high = half_at(b + 2);
  for (int c = 0; c < 256; ++c) {
    const int g = c / 32, low = b[4 + g / 2] >> g % 2 * 4 & 15;
    const float scale = f16_at(b) * static_cast<float>((low | (high >> 2 * g & 3) << 4) - 32);
    out[c] = scale * static_cast<float>(kIQ4NLValues[nibble(b + 8 + g * 16, c % 32)]);
  }
}

float f32_at(const uint8_t* p) {
  float f = 0;
  std::memcpy(&f, p, sizeof f);
  return f;
}

template <int kColumns>
void fp8(const uint8_t* b, float* out) {
  static const auto kNumbers = [] {
    std::array<float, 256> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = e4m3_to_f32(static_cast<uint8_t>(i));
    return all;
  }();
  const float scale = f32_at(b);
  for (int c = 0; c < kColumns; ++c) out[c] = scale * kNumbers[b[4 + c]];
}

float scale_of_int4(const uint8_t* b) { return b[3] == 0 ? f16_at(b) : bf16_to_f32(half_at(b)); }

template <int kColumns>
void int4(const uint8_t* b, float* out) {
  const float scale = scale_of_int4(b);
  const int zero = b[2];
  const uint8_t* q = b + 4;
  for (int c = 0; c < kColumns; c += 32, q += 16)
    for (int i = 0; i < 16; ++i) {
      out[c + i] = scale * static_cast<float>((q[i] & 15) - zero);
      out[c + i + 16] = scale * static_cast<float>((q[i] >> 4) - zero);
    }
}

void nvfp4(const uint8_t* b, float* out) {
  for (int c = 0; c < 128; ++c) {
    const float scale = f32_at(b) * e4m3_to_f32(b[4 + c / 16]);
    out[c] = scale * (0.5f * static_cast<float>(kE2M1Doubled[nibble(b + 12 + c / 32 * 16, c % 32)]));
  }
}

void int2(const uint8_t* b, float* out) {
  const float scale = bf16_to_f32(half_at(b)), offset = bf16_to_f32(half_at(b + 2));
  for (int c = 0; c < 64; ++c) out[c] = scale * static_cast<float>(b[4 + c % 16] >> c / 16 * 2 & 3) + offset;
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
    case DType::kQ4_1: return q4_1;
    case DType::kQ5_1: return q5_1;
    case DType::kIQ4XS: return iq4_xs;
    case DType::kFP8: return fp8<128>;
    case DType::kFP8G32: return fp8<32>;
    case DType::kInt4G128: return int4<128>;
    case DType::kInt4G64: return int4<64>;
    case DType::kInt4G32: return int4<32>;
    case DType::kNVFP4: return nvfp4;
    case DType::kInt2: return int2;
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

/// Whether the bytes [first, end) of a block, which are at `b` + first, make only finite numbers. Those are whole
/// multiples of 4 bytes, or of 2 in blocks that are no multiple of 4.
bool finite_halves(const uint8_t* b, int64_t first, int64_t end, int64_t at, int64_t count) {
  constexpr uint16_t kExponent = 0x7c00;
  for (int64_t half = at; half < at + 2 * count; half += 2)
    if (half >= first && half + 2 <= end && (half_at(b + half) & kExponent) == kExponent) return false;
  return true;
}

bool finite_e4m3(const uint8_t* b, int64_t first, int64_t end, int64_t at, int64_t count) {
  for (int64_t i = std::max(first, at); i < std::min(end, at + count); ++i)
    if ((b[i] & 0x7f) == 0x7f) return false;
  return true;
}

/// What a block's first 4 bytes say as one f32, times the largest number that it scales.
bool finite_scale(const uint8_t* b, int64_t first, float largest) {
  return first > 0 || std::isfinite(f32_at(b) * largest);
}

bool is_finite(DType d, const uint8_t* b, int64_t first, int64_t end) {
  constexpr uint8_t kLargestE8M0 = 252;  // with it, the largest value of e2m1 is still finite
  constexpr float kLargestE4M3 = 448.0f, kLargestE2M1 = 6.0f, kLargestDifference = 256.0f;
  const int64_t columns = block_shape(d).columns;
  switch (d) {
    case DType::kQ2K: return finite_halves(b, first, end, 80, 2);
    case DType::kQ3K: return finite_halves(b, first, end, 108, 1);
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K: return finite_halves(b, first, end, 0, 2);
    case DType::kQ6K: return finite_halves(b, first, end, 208, 1);
    case DType::kMXFP4: return first > 0 || b[0] <= kLargestE8M0;
    case DType::kFP8:
    case DType::kFP8G32: return finite_scale(b, first, kLargestE4M3) && finite_e4m3(b, first, end, 4, columns);
    case DType::kInt4G128:
    case DType::kInt4G64:
    case DType::kInt4G32: return first > 0 || std::isfinite(scale_of_int4(b) * kLargestDifference);
    case DType::kInt2:
      return first > 0 || std::isfinite(bf16_to_f32(half_at(b)) * 3 + bf16_to_f32(half_at(b + 2)));
    case DType::kNVFP4:
      return finite_scale(b, first, kLargestE4M3 * kLargestE2M1) && finite_e4m3(b, first, end, 4, columns / 16);
    default: return finite_halves(b, first, end, 0, 1);
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

float e4m3_to_f32(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((byte & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
  return byte & 0x80 ? -value : value;
}

std::optional<size_t> find_block_not_finite(DType d, uint64_t at, std::span<const std::byte> bytes) {
  const auto size = static_cast<uint64_t>(block_shape(d).bytes);
  const uint64_t end = at + bytes.size();
  for (uint64_t i = at / size; i * size < end; ++i) {
    const uint64_t begin = i * size, first = std::max(at, begin) - begin, last = std::min(end, begin + size) - begin;
    // A block that begins before the piece: its bytes up to `first` are not looked at.
    const auto* b = reinterpret_cast<const uint8_t*>(bytes.data()) + (begin + first - at) - first;
    if (!is_finite(d, b, static_cast<int64_t>(first), static_cast<int64_t>(last))) return i;
  }
  return std::nullopt;
}

}  // namespace moestro::formats
