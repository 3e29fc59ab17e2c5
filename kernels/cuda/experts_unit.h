#pragma once
// What is made of an expert's sums: gate and up with their biases, joined by the model's unit, and down with its bias.
// Kernels ask for them where sums are complete, by a branch that all threads take alike. Only for few tokens, where no
// register is left, experts without all that (kPlain) have kernels of their own.

#include "kernels/cuda/experts_work.h"
#include "kernels/cuda/fast_math.h"

namespace moestro::kernels::cuda {

/// a / (1 + e^-b)
struct ExactSigmoid {
  __device__ static float times(float a, float b) { return a / (1.0f + expf(-b)); }
};
struct FastSigmoid {
  __device__ static float times(float a, float b) { return fast_divided(a, 1.0f + fast_exp(-b)); }
};

__device__ inline bool has_biases(const MoestroCudaExperts& a) { return a.biases.gate != 0; }
__device__ inline const float* biases_at(const char* blob, int64_t offset) {
  return reinterpret_cast<const float*>(blob + offset);
}

/// kernels::GatedUnit. NaN stays.
template <typename Sigmoid>
__device__ inline float joined(const MoestroCudaGatedUnit& unit, float gate, float up) {
  if (unit.clamped == 0) return Sigmoid::times(gate, gate) * up;
  gate = gate > unit.limit ? unit.limit : gate;
  up = up < -unit.limit ? -unit.limit : up > unit.limit ? unit.limit : up;
  return Sigmoid::times(gate, unit.alpha * gate) * (up + 1.0f);
}

/// silu(gate) * up, and no biases.
inline bool is_plain(const MoestroCudaExperts& a) {
  return a.unit.clamped == 0 && a.biases.gate == 0;
}

/// Of row f of gate and of up, below ffn.
template <typename Sigmoid, bool kPlain = false>
__device__ inline float activated(const MoestroCudaExperts& a, const char* blob, int64_t f, float gate, float up) {
  if constexpr (kPlain) {
    return Sigmoid::times(gate, gate) * up;
  } else {
    if (has_biases(a)) gate += biases_at(blob, a.biases.gate)[f], up += biases_at(blob, a.biases.up)[f];
    return joined<Sigmoid>(a.unit, gate, up);
  }
}

/// Of row h of down.
template <bool kPlain = false>
__device__ inline float with_down_bias(const MoestroCudaExperts& a, const char* blob, int64_t h, float sum) {
  return !kPlain && has_biases(a) ? sum + biases_at(blob, a.biases.down)[h] : sum;
}

}  // namespace moestro::kernels::cuda
