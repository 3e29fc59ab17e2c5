#pragma once
// What the next routers would choose for the residual stream as it is now: layers change it little, so their answer is a good guess of
// what they will choose (HOBBIT, Tang et al. 2024; Eliseev and Mazur 2023). One product with all of them stacked.

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"

namespace moestro::engine {

class GateLookahead {
 public:
  /// Keeps a copy of all routers, each multiplied by the norm before it: f32 [MoE layers, experts, hidden]. `ops` outlives it.
  GateLookahead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops, int64_t step_tokens_max, int32_t layers_max);

  struct Answer {
    int32_t layers = 0;             ///< how many routers were asked: fewer than wanted at the model's end
    std::span<const float> logits;  ///< [rows, layers, experts]; valid until the next call
  };
  /// x: [rows, hidden], the residual stream as MoE layer `layer` meets it. Asks the `wanted` routers after it.
  Answer ask(MoeLayerId layer, int32_t wanted, const float* x, int64_t rows);

 private:
  kernels::Ops* ops_;
  float eps_;
  int64_t hidden_, experts_;
  int32_t layers_, layers_max_;
  std::vector<float> ones_, stacked_, normed_, logits_;
};

}  // namespace moestro::engine
