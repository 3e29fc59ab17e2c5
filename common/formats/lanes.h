#pragma once
// Groups of numbers side by side, each in a lane of the vector registers: what encoders try scales on. No sum crosses
// lanes, and the sources are compiled without contraction, so a group's result is the same in any company and on any
// machine.

#include <cstdint>

namespace moestro::formats {

inline constexpr int64_t kLanes = 8;
inline constexpr int64_t kLongestGroup = 128;

/// Number i of group g is at [i][g].
struct Lanes {
  int64_t length = 0;
  alignas(64) float values[kLongestGroup][kLanes];

  /// `count` adjacent groups of `n` numbers; lanes without a group are zeros.
  void load(const float* numbers, int64_t n, int64_t count);
};

/// What rounding a group to the levels of one scale (and minimum) gives: the sum of the squared errors, and the sums
/// that the least squares are solved with. q are the levels, x the numbers.
struct LaneSums {
  alignas(64) float error[kLanes], q[kLanes], qq[kLanes], qx[kLanes];
};

/// x = scale * q with q of some levels.
struct Levels {
  using Try = void (*)(const Lanes& lanes, const float* scale, LaneSums& sums);
  Try round;
  float least, most;  ///< the outermost ones; least < 0 < most
};
extern const Levels kSigned4Bits;  ///< -8 to 7
extern const Levels kSigned5Bits;  ///< -16 to 15
extern const Levels kSigned6Bits;  ///< -32 to 31
extern const Levels kIQ4NLLevels, kE2M1DoubledLevels, kE4M3Levels;

/// x = scale * q - minimum with q from 0 to 15, or to 31. Sums are of x.
void round_to_4_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums);
void round_to_5_bits(const Lanes& lanes, const float* scale, const float* minimum, LaneSums& sums);

/// 1.5 * 2^23: added to a small number, it leaves no room for a fraction.
inline constexpr float kNoFraction = 12582912.0f;
/// To the nearest whole number, ties to even, for |x| < 2^22.
inline float round_even(float x) { return (x + kNoFraction) - kNoFraction; }

/// 1 / scale; 0 of scales so small that it would be no number.
inline float inverse_of(float scale) {
  constexpr float kLeast = 1e-37f;
  return scale > kLeast || scale < -kLeast ? 1.0f / scale : 0.0f;
}

}  // namespace moestro::formats
