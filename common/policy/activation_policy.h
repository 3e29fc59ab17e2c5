#pragma once
// Evicts the expert that the running request has used least; of equal ones, that of the latest layer. The rank is the
// expert's count of tokens in the request (its cell of the activation matrix) times a weight that falls from the first
// layer to the last, because predictions are weakest for the first layers (MoE-Infinity, "Activation-aware expert
// caching", 2024).
//
// Counts belong to the request, so they start again with each request. If several run at once, a share of the counts is
// dropped when another joins.

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

struct ActivationOptions {
  int32_t layers = 1;
  int32_t experts = 1;     ///< per layer: key = layer * experts + expert
  double beginning =
      0.1;  ///< initial count of every expert in tokens, so that layers differ before there are counts
};

class ActivationPolicy final : public RankedPolicy {
 public:
  explicit ActivationPolicy(ActivationOptions options) : options_(options) {}
  std::string_view name() const override { return "activation"; }
  void sequence_began(int32_t sequences) override;
  double heat(uint32_t key, double now) const override;

 private:
  void apply(State& state, const Use& use, bool entering) const override;
  double layer_weight(uint32_t key) const;
  const ActivationOptions options_;
};

}  // namespace moestro::policy
