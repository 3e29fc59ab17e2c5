#pragma once
// Draws a token from a row of logits, and computes log-probabilities.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

class Sampler {
 public:
  /// `ops` outlives it.
  explicit Sampler(kernels::Ops& ops) : ops_(ops) {}

  /// The token after `position` (the position of the row's own token). The order: temperature; the top_k best; the
  /// smallest set of the best that has top_p of the rest; those with at least min_p times the best one's probability.
  /// The token is drawn with the random number of (seed, choice, position). Logits are finite, or -infinity for tokens
  /// that must not be drawn; at least one is finite. The vocabulary is never sorted: a row of 32,000 costs 0.1 to 0.3
  /// ms with any setting (sampler_test).
  TokenId sample(std::span<const float> logits, const Sampling& sampling, int64_t position);

  /// log(sum(exp(logits))), summed in double.
  static double log_sum_exp(std::span<const float> logits);
  static bool all_finite(std::span<const float> logits);
  /// The highest logit; the lowest id among equals.
  static TokenId argmax(std::span<const float> logits);

  /// The log-probability of `id` and the `best` most likely tokens, of the unmodified distribution.
  void score(std::span<const float> logits, TokenId id, int32_t best, TokenScore& out);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  static bool better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  /// Fills candidates_ with the n best, in order.
  void take_best(std::span<const float> logits, size_t n);
  // Each sets the weight of tokens that must not be drawn to 0. Weights are those of `logits`, at most 1.
  void drop_all_but_best(std::span<const float> logits, size_t n);
  void drop_tail(std::span<const float> logits, double top_p);
  void drop_unlikely(float min_p);
  /// The token at `share` of the cumulative weights.
  TokenId draw(double share);

  kernels::Ops& ops_;
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;        ///< by token
  std::vector<double> sums_;          ///< of blocks of weights, or of classes of weights
};

}  // namespace moestro::engine
