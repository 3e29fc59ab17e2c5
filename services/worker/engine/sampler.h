#pragma once
// From a row of logits to a token, and to log-probabilities.

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

  /// The token after `position` (the position of the row's own token). Temperature, then the top_k best, then the
  /// smallest set of the best that has top_p of what is left, then those with at least min_p times the best one's
  /// probability; drawn with the random number of (seed, choice, position). Logits are finite, or -infinity where a
  /// token is not to be drawn; one at least is finite. The vocabulary is never sorted: a row of 32,000 costs 0.1 to 0.3
  /// ms, whatever is asked for (sampler_test).
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
  /// candidates_: the n best, in order.
  void take_best(std::span<const float> logits, size_t n);
  // Each gives the weight 0 to tokens that are not to be drawn. Weights are those of `logits`, at most 1.
  void drop_all_but_best(std::span<const float> logits, size_t n);
  void drop_tail(std::span<const float> logits, double top_p);
  void drop_unlikely(float min_p);
  /// The token that `share` of all weights falls on.
  TokenId draw(double share);

  kernels::Ops& ops_;
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;        ///< by token
  std::vector<double> sums_;          ///< of blocks of weights, or of classes of weights
};

}  // namespace moestro::engine
