#pragma once
// The expert that this request has used least goes first, and of equal ones that of a late layer: an expert's count of
// tokens in the running request (its cell of the activation matrix), times a weight that falls from the first layer to
// the last, because predictions are weakest for the first layers (MoE-Infinity, "Activation-aware expert caching",
// 2024).
//
// Counts are of the request: they begin anew with each, and of several running at once the share of one goes when
// another joins.

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

struct ActivationOptions {
  int32_t layers = 1;
  int32_t experts = 1;     ///< per layer: key = layer * experts + expert
  double beginning =
      0.1;  ///< tokens that every expert counts as used by, so that layers differ before there are counts
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
