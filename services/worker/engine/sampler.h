#pragma once
// From a row of logits to a token, and to log-probabilities.

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

class Sampler {
 public:
  /// The token after `position` (the position of the row's own token). Temperature, then the top_k best, then the smallest set of
  /// the best that has top_p of what is left, then those with at least min_p times the best one's probability; drawn with the
  /// random number of (seed, choice, position). Logits are finite, or -infinity where a token is not to be drawn; one at least is finite.
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
  static bool better(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }
  void collect(std::span<const float> logits);
  /// The n best candidates come first, in order.
  void order_best(size_t n);

  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace moestro::engine
