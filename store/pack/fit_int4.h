#pragma once
// Scale and offset of int4 groups, many groups at once.

#include <cstdint>

#include "common/dtype.h"

namespace moestro::store {

inline constexpr int64_t kFitLanes = 8;  ///< groups that are fitted side by side, a lane of the vector registers each

/// Groups of kQuantGroup values, turned: value i of group g is at [i][g].
struct Int4Fits {
  alignas(64) float values[kQuantGroup][kFitLanes];
  alignas(64) float q[kQuantGroup][kFitLanes];  ///< out: 0..15
  alignas(64) float scale[kFitLanes], offset[kFitLanes];  ///< out: as bf16 holds them
};

/// Fits all lanes; values are finite, and so are their ranges and the bf16 of their least. Each lane's result is, bit
/// by bit, that of the same sums taken one group after another: no sum crosses lanes.
void fit_int4(Int4Fits& fits);

}  // namespace moestro::store
