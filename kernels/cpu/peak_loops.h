#pragma once
// Multiply-adds in registers: no product on this machine can be faster.

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace moestro::kernels::cpu {

/// A loop over 16 accumulators that stay in registers.
struct PeakLoop {
  const char* name;           ///< "f32", "bf16", "int8": of the numbers multiplied
  const char* instruction;    ///< the instruction that it uses
  double operations;          ///< operations of one round: two for each multiply-add
  float (*run)(int64_t rounds);  ///< returns a sum, so that the loop is not optimised away
};

/// The loops of `isa`, f32 first. The machine must have `isa`.
std::span<const PeakLoop> peak_loops(Isa isa);

/// Whether this processor gains by `vdpbf16ps` where products of many tokens are limited by arithmetic: measured once,
/// in a fraction of a millisecond. AMD's EPYC multiplies with it at twice the rate of f32, Intel's Xeon of the fifth
/// generation at half of it. True where the machine lacks Isa::kAvx512Bf16Vnni.
bool bf16_pairs_pay();

}  // namespace moestro::kernels::cpu
