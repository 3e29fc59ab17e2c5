#pragma once
// Turns a row of logits in host memory into a token, scores, or a failure of its sequence.

#include <span>
#include <vector>

#include "services/worker/engine/sampler.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class LogitReader {
 public:
  /// `ops` compute on host memory, and outlive it.
  explicit LogitReader(kernels::Ops& ops) : sampler_(ops) {}

  /// Fills sampled and scores of the row's sequence (`outcomes` and `failed`: one per sequence of the plan), unless it
  /// has failed before. False: a logit is not finite, and the sequence has failed now.
  bool read(const StepPlan& plan, const StepBatch& batch, const LogitRow& row, std::span<const float> logits,
            std::vector<Status>& failed, std::vector<SequenceOutcome>& outcomes);

  /// The failure of a sequence with logits that are not finite. `which`: how many, such as "3 of 32000".
  static Status not_finite(const std::string& which, int32_t position);

 private:
  void sample(const PlanSequence& sequence, const TokenHistory& history, int64_t position,
              std::span<const float> logits, SequenceOutcome& out);

  Sampler sampler_;
  std::vector<float> adjusted_;
};

}  // namespace moestro::engine
