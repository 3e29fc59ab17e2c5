#pragma once
// From the last layer's rows to tokens, scores and sums of hidden states on a CUDA device. Tokens are drawn there; rows
// whose logits the host has to see (scores, log-probabilities, penalties, grammars), and hidden states that are summed
// up, are copied to it.

#include <memory>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "services/worker/engine/dense_weights.h"
#include "services/worker/engine/logit_reader.h"
#include "services/worker/engine/state_sums.h"

namespace moestro::cuda {

class CudaHead {
 public:
  CudaHead(const model::ModelSpec& spec, const engine::DenseWeights& weights, kernels::cuda::CudaOps& ops,
           kernels::cuda::CudaMemory& memory, kernels::Ops& host_ops, int64_t step_tokens_max);
  Status status() const { return buffers_.status(); }
  /// Rows of logits that are computed at a time.
  static int64_t tile_rows(int64_t step_tokens_max);

  /// Queues everything for the rows that need logits or whose states are summed up, and reads those that the host has
  /// to see: it waits only for them.
  /// `normed`: [rows, hidden].
  void launch(const engine::StepPlan& plan, const engine::StepBatch& batch, const float* normed);
  /// After the stream has been waited for: fills `outcomes` and `failed`. Returns how many sequences have failed by
  /// logits or states that are not finite.
  uint32_t finish(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed,
                  std::vector<engine::SequenceOutcome>& outcomes);

 private:
  void launch_tile(const engine::StepPlan& plan, const engine::StepBatch& batch, const float* normed, int64_t first,
                   int64_t n);
  /// Those of row_list_.
  const float* rows_of(const engine::StepBatch& batch, const float* normed);

  const model::ModelSpec& spec_;
  const engine::DenseWeights& weights_;
  kernels::cuda::CudaOps& ops_;
  kernels::cuda::CudaMemory& memory_;
  engine::LogitReader reader_;
  int64_t tile_;                              ///< rows of logits at a time
  kernels::Buffers buffers_;
  float *rows_, *logits_;
  int32_t* device_ids_;
  kernels::cuda::Pinned<int32_t> ids_;        ///< of every row with logits: the token drawn
  std::vector<int32_t> row_list_;
  std::vector<MoestroCudaSampling> how_;
  std::vector<std::vector<float>> read_;      ///< of every row with logits: what the host has to see; empty elsewhere
  engine::StateSums sums_;
  std::vector<float> states_;  ///< a tile of hidden states in host memory
};

}  // namespace moestro::cuda
