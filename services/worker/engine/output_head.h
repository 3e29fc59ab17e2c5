#pragma once
// From the last layer's rows to tokens, scores and sums of hidden states on the CPU: logits only of rows that need
// them, a tile of rows at a time.

#include <vector>

#include "kernels/aligned_vector.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"
#include "services/worker/engine/logit_reader.h"
#include "services/worker/engine/state_sums.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class OutputHead {
 public:
  OutputHead(const model::ModelSpec& spec, const DenseWeights& weights, kernels::Ops& ops);

  /// Fills sampled, scores and state sums of `outcomes` (one per sequence of the plan). A row with a logit or a state
  /// that is not finite fails its sequence. Returns how many it has failed.
  uint32_t run(const StepPlan& plan, const StepBatch& batch, const float* hidden, std::vector<Status>& failed,
               std::vector<SequenceOutcome>& outcomes);

 private:
  uint32_t run_logits(const StepPlan& plan, const StepBatch& batch, const float* hidden, std::vector<Status>& failed,
                      std::vector<SequenceOutcome>& outcomes);

  const model::ModelSpec& spec_;
  const DenseWeights& weights_;
  kernels::Ops& ops_;
  LogitReader reader_;
  StateSums sums_;
  kernels::AlignedVector<float> rows_, logits_;
};

}  // namespace moestro::engine
