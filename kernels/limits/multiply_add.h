#pragma once
// Multiply-adds on registers alone: what no product of this machine can be faster than.

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace moestro::kernels::limits {

/// A loop over 16 accumulators that never leave their registers.
struct PeakLoop {
  const char* name;           ///< "f32", "bf16", "int8": of the numbers multiplied
  const char* instruction;    ///< what it is made of
  double operations;          ///< of one round: two for each multiply-add
  float (*run)(int64_t rounds);  ///< returns a sum, so that the loop is not for nothing
};

/// Those that `isa` has; f32 is the first. the machine has `isa`.
std::span<const PeakLoop> peak_loops(Isa isa);

}  // namespace moestro::kernels::limits
