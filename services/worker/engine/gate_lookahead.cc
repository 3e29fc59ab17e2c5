#include "services/worker/engine/gate_lookahead.h"

#include <algorithm>
#include <vector>

namespace moestro::engine {

GateLookahead::GateLookahead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops,
                             kernels::Memory& memory, int64_t step_tokens_max, int32_t layers_max)
    : ops_(&ops),
      eps_(static_cast<float>(spec.norm_eps)),
      layer_norm_(spec.norm == model::ModelSpec::Norm::kLayer),
      hidden_(spec.hidden),
      experts_(spec.moe().experts),
      layers_(static_cast<int32_t>(spec.moe_layers())),
      layers_max_(std::min(layers_max, layers_)),
      buffers_(memory) {
  ones_ = buffers_.make<float>(hidden_);
  stacked_ = buffers_.make<float>(layers_ * experts_ * hidden_);
  if (spec.moe().router.logit_bias || spec.norm_bias) biases_ = buffers_.make<float>(layers_ * experts_);
  normed_ = buffers_.make<float>(step_tokens_max * hidden_);
  logits_ = buffers_.make<float>(step_tokens_max * layers_max_ * experts_);
  if (!status().is_ok()) return;
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const std::vector<float> ones(static_cast<size_t>(hidden_), 1.0F);
  memory.copy_in(ones_, ones.data(), hidden_ * kFloat);
  std::vector<float> router(static_cast<size_t>(experts_ * hidden_)), norm(static_cast<size_t>(hidden_));
  std::vector<float> norm_bias(norm.size()), biases(static_cast<size_t>(experts_));
  float* to = stacked_;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (!spec.layers[l].moe_index) continue;
    memory.copy_out(router.data(), weights.layer(l).router.data, experts_ * hidden_ * kFloat);
    memory.copy_out(norm.data(), weights.layer(l).post_norm, hidden_ * kFloat);
    if (biases_ != nullptr) {
      std::ranges::fill(biases, 0.0F);
      const engine::LayerWeights& w = weights.layer(l);
      if (w.router_logit_bias) memory.copy_out(biases.data(), w.router_logit_bias, experts_ * kFloat);
      if (w.post_norm_bias) memory.copy_out(norm_bias.data(), w.post_norm_bias, hidden_ * kFloat);
      for (size_t i = 0; w.post_norm_bias && i < router.size(); ++i)
        biases[i / norm.size()] += router[i] * norm_bias[i % norm.size()];
      memory.copy_in(biases_ + (to - stacked_) / hidden_, biases.data(), experts_ * kFloat);
    }
    for (size_t i = 0; i < router.size(); ++i) router[i] *= norm[i % norm.size()];
    memory.copy_in(to, router.data(), experts_ * hidden_ * kFloat);
    to += experts_ * hidden_;
  }
}

int32_t GateLookahead::asked(MoeLayerId layer, int32_t wanted) const {
  return std::max(0, std::min({wanted, layers_max_, layers_ - static_cast<int32_t>(layer.value) - 1}));
}

GateLookahead::Answer GateLookahead::ask(MoeLayerId layer, int32_t wanted, const float* x, int64_t rows) {
  const auto first = static_cast<int32_t>(layer.value) + 1;
  const int32_t asked = this->asked(layer, wanted);
  if (asked == 0) return {};
  if (layer_norm_) ops_->layer_norm(x, rows, hidden_, ones_, nullptr, eps_, normed_);
  else ops_->rms_norm(x, rows, hidden_, ones_, eps_, normed_);
  const kernels::Weight routers{stacked_ + first * experts_ * hidden_, DType::kF32, asked * experts_, hidden_, nullptr};
  const float* const biases = biases_ == nullptr ? nullptr : biases_ + first * experts_;
  ops_->matmul(normed_, rows, routers, biases, logits_, kernels::Activations::kExact);
  return {asked, logits_, rows * asked * experts_};
}

}  // namespace moestro::engine
