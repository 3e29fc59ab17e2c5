#pragma once
// What the next routers would choose for the current residual stream. Layers change the stream only a little, so this
// is a good guess of what they will choose (HOBBIT, Tang et al. 2024; Eliseev and Mazur 2023). It is one product with
// all routers stacked.

#include <cstdint>

#include "common/model/model_spec.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"

namespace moestro::engine {

class GateLookahead {
 public:
  /// Keeps a copy of all routers, each multiplied by the norm before it: f32 [MoE layers, experts, hidden]. `ops` and
  /// their `memory` outlive it.
  GateLookahead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops, kernels::Memory& memory,
                int64_t step_tokens_max, int32_t layers_max);
  /// Whether there was memory for it.
  Status status() const { return buffers_.status(); }

  struct Answer {
    int32_t layers = 0;             ///< the number of routers asked; fewer at the model's end
    const float* logits = nullptr;  ///< in the backend's memory: [rows, layers, experts]; valid until the next call
    int64_t count = 0;              ///< of them
  };
  /// How many routers ask() would ask from `layer` on.
  int32_t asked(MoeLayerId layer, int32_t wanted) const;
  /// x: [rows, hidden], the residual stream at the input of MoE layer `layer`. Asks the `wanted` routers after it.
  Answer ask(MoeLayerId layer, int32_t wanted, const float* x, int64_t rows);

 private:
  kernels::Ops* ops_;
  float eps_;
  bool layer_norm_;
  int64_t hidden_, experts_;
  int32_t layers_, layers_max_;
  kernels::Buffers buffers_;
  float *ones_, *stacked_, *normed_, *logits_;
  float* biases_ = nullptr;  ///< of the logits, [layers, experts]; null: there are none
};

}  // namespace moestro::engine
