#include "common/formats/lanes.h"

#include <cstring>

#include "common/formats/blocks.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MOESTRO_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MOESTRO_CLONES
#endif
#define MOESTRO_INLINE inline __attribute__((always_inline))

namespace moestro::formats {
namespace {

// A lane for each group; the compiler makes of them what registers there are.
typedef float Floats __attribute__((vector_size(4 * kLanes), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes), may_alias));

MOESTRO_INLINE Floats& all(float* lanes) { return *reinterpret_cast<Floats*>(lanes); }
MOESTRO_INLINE const Floats& all(const float* lanes) { return *reinterpret_cast<const Floats*>(lanes); }

/// Levels that are whole numbers. Clamped before they are rounded, which is exact only for small ones.
template <int kLeast, int kMost>
struct Whole {
  static MOESTRO_INLINE void nearest(Floats& x) {
    const Floats zero = {}, least = zero + static_cast<float>(kLeast), most = zero + static_cast<float>(kMost);
    x = x < least ? least : x;
    x = x > most ? most : x;
    x = (x + kNoFraction) - kNoFraction;
  }
};

/// Levels of a table: the sum of the steps that x is beyond.
struct IQ4NL {
  static MOESTRO_INLINE void nearest(Floats& x) {
    const Floats zero = {};
    Floats level = zero + static_cast<float>(kIQ4NLValues[0]);
    for (int i = 0; i < 15; ++i) {
      const auto low = static_cast<float>(kIQ4NLValues[i]), high = static_cast<float>(kIQ4NLValues[i + 1]);
      level += x > zero + (low + high) / 2 ? zero + (high - low) : zero;
    }
    x = level;
  }
};

/// Twice the values of e2m1.
struct E2M1Doubled {
  static MOESTRO_INLINE void nearest(Floats& x) {
    const Floats zero = {};
    const Floats magnitude = x < zero ? -x : x;
    Floats level = zero;
    for (int i = 0; i < 7; ++i) {
      const auto low = static_cast<float>(kE2M1Doubled[i]), high = static_cast<float>(kE2M1Doubled[i + 1]);
      level += magnitude > zero + (low + high) / 2 ? zero + (high - low) : zero;
    }
    x = x < zero ? -level : level;
  }
};

/// Three bits of mantissa, ties to even; steps of 2^-9 below 2^-6.
struct E4M3 {
  static MOESTRO_INLINE void nearest(Floats& x) {
    constexpr float kMost = 448.0f, kLeastNormal = 0x1p-6f, kNoFractionOfSteps = 0x1.8p14f;
    constexpr int32_t kCut = 20;  // bits of the mantissa
    const Floats zero = {};
    x = x > kMost ? zero + kMost : x;
    x = x < -kMost ? zero - kMost : x;
    const Floats small = (x + kNoFractionOfSteps) - kNoFractionOfSteps;
    Ints bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = (bits + ((1 << (kCut - 1)) - 1) + ((bits >> kCut) & 1)) & ~((1 << kCut) - 1);
    Floats normal;
    std::memcpy(&normal, &bits, sizeof normal);
    const Floats magnitude = x < zero ? -x : x;
    x = magnitude < kLeastNormal ? small : normal;
  }
};

template <class Level>
MOESTRO_INLINE void round_groups(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums) {
  alignas(64) float inverses[kLanes], scales[kLanes], minima[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) {
    scales[l] = scale[l];
    minima[l] = minimum == nullptr ? 0.0f : minimum[l];
    inverses[l] = inverse_of(scale[l]);
  }
  const Floats step = all(scales), least = all(minima), inverse = all(inverses);
  Floats error = {}, sum_q = {}, sum_qq = {}, sum_qx = {};
  for (int64_t i = 0; i < lanes.length; ++i) {
    const Floats x = all(lanes.values[i]);
    Floats q = (x + least) * inverse;
    Level::nearest(q);
    const Floats miss = x - (q * step - least);
    error += miss * miss;
    sum_q += q;
    sum_qq += q * q;
    sum_qx += q * x;
  }
  all(sums.error) = error;
  all(sums.q) = sum_q;
  all(sums.qq) = sum_qq;
  all(sums.qx) = sum_qx;
}

// One function for each kind of levels, because templates cannot be cloned.
MOESTRO_CLONES void signed_4_bits(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<Whole<-8, 7>>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void signed_5_bits(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<Whole<-16, 15>>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void signed_6_bits(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<Whole<-32, 31>>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void iq4_nl(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<IQ4NL>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void e2m1_doubled(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<E2M1Doubled>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void e4m3(const Lanes& lanes, const float* scale, LaneSums& sums) {
  round_groups<E4M3>(lanes, scale, nullptr, sums);
}
MOESTRO_CLONES void unsigned_4_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums) {
  round_groups<Whole<0, 15>>(lanes, scale, minimum, sums);
}
MOESTRO_CLONES void unsigned_5_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums) {
  round_groups<Whole<0, 31>>(lanes, scale, minimum, sums);
}

}  // namespace

const Levels kSigned4Bits = {signed_4_bits, -8, 7};
const Levels kSigned5Bits = {signed_5_bits, -16, 15};
const Levels kSigned6Bits = {signed_6_bits, -32, 31};
const Levels kIQ4NLLevels = {iq4_nl, -127, 113};
const Levels kE2M1DoubledLevels = {e2m1_doubled, -12, 12};
const Levels kE4M3Levels = {e4m3, -448, 448};

void round_to_4_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums) {
  unsigned_4_bits(lanes, scale, minimum, sums);
}
void round_to_5_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums) {
  unsigned_5_bits(lanes, scale, minimum, sums);
}

void Lanes::load(const float* numbers, int64_t n, int64_t count) {
  length = n;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t g = 0; g < kLanes; ++g) values[i][g] = g < count ? numbers[g * n + i] : 0.0f;
}

}  // namespace moestro::formats
