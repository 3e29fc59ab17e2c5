#pragma once
// Scale and offset of int4 groups, many groups at once.

#include <cstdint>

#include "common/dtype.h"

namespace moestro::store {

inline constexpr int64_t kFitLanes = 8;  ///< groups that are fitted at once, each in a lane of the vector registers

/// Groups of kQuantGroup values, transposed: value i of group g is at [i][g].
struct Int4Fits {
  alignas(64) float values[kQuantGroup][kFitLanes];
  alignas(64) float q[kQuantGroup][kFitLanes];  ///< out: 0..15
  alignas(64) float scale[kFitLanes], offset[kFitLanes];  ///< out: rounded to bf16
};

/// Fits all lanes. Values must be finite, and so must their ranges and the bf16 of their minimum. Each lane's result is
/// bitwise that of fitting its group alone, because no sum crosses lanes.
void fit_int4(Int4Fits& fits);

}  // namespace moestro::store
