#pragma once
// Scale and offset of int4 groups, and of groups of fewer bits, many groups at once.

#include <cstdint>

#include "common/dtype.h"

namespace moestro::store {

inline constexpr int64_t kFitLanes = 8;  ///< groups that are fitted at once, each in a lane of the vector registers

/// Groups of kQuantGroup values, transposed: value i of group g is at [i][g].
struct Int4Fits {
  alignas(64) float values[kQuantGroup][kFitLanes];
  alignas(64) float q[kQuantGroup][kFitLanes];  ///< out: 0..15, or up to FitRule::most
  alignas(64) float scale[kFitLanes], offset[kFitLanes];  ///< out: rounded to bf16
};

/// How a format's groups are fitted.
struct FitRule {
  float most;       ///< the largest number of a value
  float starts[4];  ///< parts of the range that the steps span at first; the rest is cut off
};
inline constexpr FitRule kFitInt4{15, {1.0f, 0.9f, 0.8f, 0.7f}};
/// With so few steps, the tails of a group cost more than they are worth.
inline constexpr FitRule kFitInt2{3, {1.0f, 0.85f, 0.7f, 0.55f}};

/// Fits all lanes. Values must be finite, and so must their ranges and the bf16 of their minimum. Each lane's result is
/// bitwise that of fitting its group alone, because no sum crosses lanes.
void fit_int4(Int4Fits& fits, const FitRule& rule = kFitInt4);

}  // namespace moestro::store
