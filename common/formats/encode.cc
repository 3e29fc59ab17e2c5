#include "common/formats/encode.h"

#include <cfloat>
#include <cmath>

#include "common/check.h"
#include "common/formats/blocks.h"
#include "common/formats/encode_parts.h"
#include "common/formats/fit.h"

namespace moestro::formats {
namespace {

/// Columns c and c + 16 of 32 in the halves of a byte; q(c) from 0 to 15.
template <class Q>
void put_nibbles(uint8_t* to, const Q& q) {
  for (int c = 0; c < 16; ++c) to[c] = static_cast<uint8_t>(q(c) | q(c + 16) << 4);
}

/// Number c to the nearest whole one of its scale, from `least` to `most`.
struct Nearest {
  const float* x;
  float inverse, least, most;
  int operator()(int c) const { return static_cast<int>(round_even(std::clamp(x[c] * inverse, least, most))); }
};

void put_q8_0(const float* x, uint8_t* b) {
  float largest = 0;
  for (int c = 0; c < 32; ++c) largest = std::max(largest, std::fabs(x[c]));
  const float scale = as_f16(largest / 127.0f);
  put_f16(b, scale);
  const Nearest q{x, inverse_of(scale), -127.0f, 127.0f};
  for (int c = 0; c < 32; ++c) b[2 + c] = static_cast<uint8_t>(q(c));
}

void put_q4_0(const float* x, float scale, uint8_t* b) {
  put_f16(b, scale);
  const Nearest q{x, inverse_of(scale), -8.0f, 7.0f};
  put_nibbles(b + 2, [&](int c) { return q(c) + 8; });
}

void put_q5_0(const float* x, float scale, uint8_t* b) {
  put_f16(b, scale);
  const Nearest q{x, inverse_of(scale), -16.0f, 15.0f};
  uint32_t high = 0;
  for (int c = 0; c < 32; ++c) high |= static_cast<uint32_t>((q(c) + 16) >> 4) << c;
  std::memcpy(b + 2, &high, sizeof high);
  put_nibbles(b + 6, [&](int c) { return (q(c) + 16) & 15; });
}

/// Of 32 numbers, how many of the first `steps` middles between levels they are beyond: the index of the nearest level.
/// `doubled` are twice the numbers, because the sum of two levels is twice their middle. A branch for each number would
/// be guessed wrong for most of them.
void nearest_levels(const float* doubled, const int8_t* levels, int steps, int32_t* index) {
  std::fill(index, index + 32, 0);
  for (int i = 0; i < steps; ++i) {
    const auto middles = static_cast<float>(levels[i] + levels[i + 1]);
    for (int c = 0; c < 32; ++c) index[c] += doubled[c] > middles ? 1 : 0;
  }
}

void put_iq4_nl(const float* x, float scale, uint8_t* b) {
  put_f16(b, scale);
  const float inverse = inverse_of(scale);
  float doubled[32];
  int32_t q[32];
  for (int c = 0; c < 32; ++c) doubled[c] = 2 * x[c] * inverse;
  nearest_levels(doubled, kIQ4NLValues, 15, q);
  put_nibbles(b + 2, [&](int c) { return q[c]; });
}

/// `half` is half of the scale, because the table holds doubled values.
void put_mxfp4(const float* x, float half, uint8_t* b) {
  b[0] = half > 0 ? static_cast<uint8_t>(std::ilogb(half) + 128) : 0;
  const float inverse = inverse_of(half);
  float doubled[32];
  int32_t q[32];
  for (int c = 0; c < 32; ++c) doubled[c] = 2 * std::fabs(x[c]) * inverse;
  nearest_levels(doubled, kE2M1Doubled, 7, q);
  put_nibbles(b + 1, [&](int c) { return q[c] == 0 ? 0 : q[c] | (x[c] < 0 ? 8 : 0); });
}

/// The byte of the nearest number of e4m3; |x| is at most a little above 448.
uint8_t to_e4m3(float x) {
  constexpr float kStepsOfSubnormals = 512.0f, kLeastNormal = 0x1p-6f;
  constexpr uint32_t kCut = 20, kBias = 127 - 7;
  const float magnitude = std::min(std::fabs(x), 448.0f);
  uint32_t byte = 0;
  if (magnitude < kLeastNormal) {
    byte = static_cast<uint32_t>(round_even(magnitude * kStepsOfSubnormals));  // 8: the least normal number
  } else {
    uint32_t bits = 0;
    std::memcpy(&bits, &magnitude, sizeof bits);
    bits += (1u << (kCut - 1)) - 1 + (bits >> kCut & 1);
    byte = (bits >> kCut) - (kBias << 3);
  }
  return static_cast<uint8_t>(byte | (x < 0 && byte != 0 ? 0x80u : 0u));
}

template <int kColumns>
void put_fp8(const float* x, float scale, uint8_t* b) {
  std::memcpy(b, &scale, sizeof scale);
  const float inverse = inverse_of(scale);
  for (int c = 0; c < kColumns; ++c) b[4 + c] = to_e4m3(x[c] * inverse);
}

/// The largest magnitude in each lane.
void largest(const Lanes& lanes, float* out) {
  std::fill(out, out + kLanes, 0.0f);
  for (int64_t i = 0; i < lanes.length; ++i)
    for (int64_t l = 0; l < kLanes; ++l) out[l] = std::max(out[l], std::fabs(lanes.values[i][l]));
}

/// The best of the scales that scale(largest, i) gives for i < count; the first where none is better.
template <class Scale>
ScaleFit best_of(const Lanes& lanes, const Levels& levels, int count, const Scale& scale_of) {
  ScaleFit best;
  float most[kLanes], scale[kLanes], least_error[kLanes];
  largest(lanes, most);
  LaneSums sums;
  for (int i = 0; i < count; ++i) {
    for (int64_t l = 0; l < kLanes; ++l) scale[l] = most[l] > 0 ? scale_of(most[l], i) : 0.0f;
    levels.round(lanes, scale, sums);
    for (int64_t l = 0; l < kLanes; ++l)
      if (i == 0 || sums.error[l] < least_error[l]) least_error[l] = sums.error[l], best.scale[l] = scale[l];
  }
  return best;
}

// Three powers of 2: the one that cuts nothing off, the next below it, which cuts off a third at most, and one below.
ScaleFit fit_mxfp4(const Lanes& lanes) {
  return best_of(lanes, kE2M1DoubledLevels, 3, [](float most, int i) {
    constexpr int kLeast = -128, kMost = 252 - 128;  // what an exponent can say, and numbers stay finite
    int exponent = 0;
    const float mantissa = std::frexp(most, &exponent);  // most = mantissa * 2^exponent, from 0.5 on
    const int covers = exponent - (mantissa > 0.75f ? 3 : 4);  // 12 * 2^(exponent - 4) = 0.75 * 2^exponent
    return std::ldexp(1.0f, std::clamp(covers - i, kLeast, kMost));
  });
}

// A scale of f32 moves the numbers within an octave of e4m3; which place is best depends on all of them.
ScaleFit fit_fp8(const Lanes& lanes) {
  constexpr int kPlaces = 8;
  constexpr float kMost = 448.0f;
  return best_of(lanes, kE4M3Levels, kPlaces, [](float most, int i) {
    const float scale = most / kMost * (1.0f + static_cast<float>(i) / kPlaces);
    return std::isfinite(scale * kMost) ? scale : most / kMost;
  });
}

ScaleFit fit_q4_0(const Lanes& lanes) { return fit_scales(lanes, kSigned4Bits, as_f16); }
ScaleFit fit_q5_0(const Lanes& lanes) { return fit_scales(lanes, kSigned5Bits, as_f16); }
ScaleFit fit_iq4_nl(const Lanes& lanes) { return fit_scales(lanes, kIQ4NLLevels, as_f16); }

/// A block is either encoded alone, or as one of kLanes.
struct Encoder {
  void (*alone)(const float* x, uint8_t* block) = nullptr;
  ScaleFit (*fit)(const Lanes& lanes) = nullptr;
  void (*put)(const float* x, float scale, uint8_t* block) = nullptr;
  float largest = 0;  ///< magnitude that its scales can say
};

constexpr float kLargestE2M1 = 0x1.8p127f;       // 6 * 2^125
constexpr float kLargestF32 = 0x1.fffep127f;     // its 448th part times 448 is finite
constexpr float kLargestMinimum = 63 * kF16Max;  // of q4_k and q5_k

Encoder encoder_of(DType d) {
  switch (d) {
    case DType::kQ8_0: return {put_q8_0, nullptr, nullptr, 127 * kF16Max};
    case DType::kQ4_0: return {nullptr, fit_q4_0, put_q4_0, 8 * kF16Max};
    case DType::kQ5_0: return {nullptr, fit_q5_0, put_q5_0, 16 * kF16Max};
    case DType::kIQ4NL: return {nullptr, fit_iq4_nl, put_iq4_nl, 127 * kF16Max};
    case DType::kMXFP4: return {nullptr, fit_mxfp4, put_mxfp4, kLargestE2M1};
    case DType::kFP8: return {nullptr, fit_fp8, put_fp8<128>, kLargestF32};
    case DType::kFP8G32: return {nullptr, fit_fp8, put_fp8<32>, kLargestF32};
    case DType::kQ4K: return {encode_q4_k, nullptr, nullptr, kLargestMinimum};
    case DType::kQ5K: return {encode_q5_k, nullptr, nullptr, kLargestMinimum};
    case DType::kQ6K: return {encode_q6_k, nullptr, nullptr, 127 * 32 * kF16Max};
    default: return {};
  }
}

bool within(const float* row, int64_t n, float largest) {
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) ok &= std::fabs(row[i]) <= largest;  // not of NaN
  return ok;
}

}  // namespace

bool can_encode(DType d) { return encoder_of(d).largest > 0; }

std::string encodable_formats(int64_t columns) {
  std::string names;
  for (const DType d : {DType::kQ8_0, DType::kQ6K, DType::kQ5K, DType::kQ4K, DType::kQ5_0, DType::kQ4_0, DType::kIQ4NL,
                        DType::kMXFP4, DType::kFP8, DType::kFP8G32})
    if (columns % block_shape(d).columns == 0) names += (names.empty() ? "" : ", ") + std::string(dtype_name(d));
  return names;
}

double bits_per_value(DType d) {
  const BlockShape shape = block_shape(d);
  const auto group = static_cast<double>(kQuantGroup);
  if (d == DType::kInt4 || d == DType::kInt8 || d == DType::kBF16In12)
    return 8.0 * static_cast<double>(row_bytes(d, kQuantGroup) + parameter_bytes(d, kQuantGroup)) / group;
  return 8.0 * static_cast<double>(shape.bytes) / static_cast<double>(shape.columns);
}

bool encode(DType d, const float* row, int64_t cols, std::byte* out) {
  const Encoder encoder = encoder_of(d);
  MOESTRO_CHECK(encoder.largest > 0, "a format with an encoder");
  if (!within(row, cols, encoder.largest)) return false;
  const BlockShape shape = block_shape(d);
  const int64_t blocks = cols / shape.columns;
  auto* to = reinterpret_cast<uint8_t*>(out);
  if (encoder.alone != nullptr) {
    for (int64_t b = 0; b < blocks; ++b) encoder.alone(row + b * shape.columns, to + b * shape.bytes);
    return true;
  }
  Lanes lanes;
  for (int64_t b = 0; b < blocks; b += kLanes) {
    const int64_t count = std::min(kLanes, blocks - b);
    lanes.load(row + b * shape.columns, shape.columns, count);
    const ScaleFit fit = encoder.fit(lanes);
    for (int64_t l = 0; l < count; ++l)
      encoder.put(row + (b + l) * shape.columns, fit.scale[l], to + (b + l) * shape.bytes);
  }
  return true;
}

}  // namespace moestro::formats
