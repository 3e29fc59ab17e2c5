#include "services/worker/engine/gate_lookahead.h"

#include <algorithm>

namespace moestro::engine {

GateLookahead::GateLookahead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops, int64_t step_tokens_max,
                             int32_t layers_max)
    : ops_(&ops), eps_(static_cast<float>(spec.norm_eps)), hidden_(spec.hidden), experts_(spec.moe().experts),
      layers_(static_cast<int32_t>(spec.moe_layers())), layers_max_(std::min(layers_max, layers_)) {
  const auto hidden = static_cast<size_t>(hidden_);
  ones_.assign(hidden, 1.0F);
  stacked_.reserve(static_cast<size_t>(layers_ * experts_) * hidden);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (!spec.layers[l].moe_index) continue;
    const auto* router = static_cast<const float*>(weights.layer(l).router.data);
    const float* norm = weights.layer(l).post_norm;
    for (int64_t e = 0; e < experts_; ++e)
      for (size_t j = 0; j < hidden; ++j) stacked_.push_back(router[static_cast<size_t>(e) * hidden + j] * norm[j]);
  }
  const auto rows = static_cast<size_t>(step_tokens_max);
  normed_.resize(rows * hidden);
  logits_.resize(rows * static_cast<size_t>(layers_max_ * experts_));
}

GateLookahead::Answer GateLookahead::ask(MoeLayerId layer, int32_t wanted, const float* x, int64_t rows) {
  const auto first = static_cast<int32_t>(layer.value) + 1;
  const int32_t asked = std::min({wanted, layers_max_, layers_ - first});
  if (asked <= 0) return {};
  ops_->rms_norm(x, rows, hidden_, ones_.data(), eps_, normed_.data());
  const kernels::Weight routers{stacked_.data() + first * experts_ * hidden_, DType::kF32, asked * experts_, hidden_, nullptr};
  ops_->matmul(normed_.data(), rows, routers, nullptr, logits_.data(), kernels::Activations::kExact);
  return {asked, {logits_.data(), static_cast<size_t>(rows * asked * experts_)}};
}

}  // namespace moestro::engine
