#pragma once
// The rows of one step: the tokens of all sequences that can run, one after another.

#include <cstdint>
#include <vector>

#include "common/lanes/schedule.h"
#include "kernels/ops.h"
#include "services/worker/engine/plan_check.h"
#include "services/worker/engine/rope_tables.h"

namespace moestro::engine {

/// A row whose logits are needed, and what for.
struct LogitRow {
  int32_t row = 0;
  uint32_t sequence = 0;    ///< index in the plan
  bool sample = false;
  bool score = false;
  TokenId target = -1;      ///< if score
};

/// Consecutive rows of a sequence whose final hidden states are summed up.
struct SummedRows {
  uint32_t sequence = 0;  ///< index in the plan
  int64_t first = 0, count = 0;
};

/// Sequences of a step, one after another, whose rows go through a layer's attention and router together.
struct MicroBatch {
  TokenRange rows;
  TokenRange sequences;  ///< entries of StepBatch::attention
};

struct StepBatch {
  std::vector<int32_t> ids, positions;
  std::vector<uint32_t> sequence_of;  ///< row -> index in the plan
  std::vector<float> row_share;       ///< row -> 1 / (rows of its sequence): 1 for a decoded token
  std::vector<TokenRange> rows_of;    ///< sequence of the plan -> its rows; none if it failed
  std::vector<kernels::AttentionSequence> attention;
  bool decodes = false;  ///< a sequence has no more than one row
  bool encodes = false;  ///< rows of sources, which go through the encoder; else rows of targets, or of a decoder alone
  /// As `attention`: the memory of each sequence's source, to write or to attend over. Empty: the model has no encoder.
  std::vector<kernels::AttentionSequence> memory;
  std::vector<MicroBatch> micro_batches;  ///< none is empty
  std::vector<lanes::MicroBatchShape> micro_batch_shapes;
  std::vector<LogitRow> logit_rows;
  std::vector<SummedRows> summed_rows;
  std::vector<const TokenHistory*> history_of;  ///< sequence of the plan -> what penalties see of it; null if it failed
  std::vector<float> cos, sin;
  lanes::LayerRange layers = {};  ///< that the rows go through
  int64_t context = 0;   ///< sum over rows of the positions they attend to
  int64_t furthest = 0;  ///< position of any row

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  void clear();
  /// What is added from now on is another micro-batch.
  void begin_micro_batch() { cuts_ = true; }
  /// Appends a checked sequence; `state` outlives the step.
  void add(const StepPlan& plan, uint32_t index, TokenRange range, const SequenceState& state, const RopeTables& rope,
           const VisiblePositions& visible);

 private:
  bool cuts_ = true;  ///< before what is added next
};

}  // namespace moestro::engine
