#pragma once
// Keys and values within an encoder's pass: of one layer at a time, in memory of the pass's own. The rows of a step lie
// at positions that are their numbers, so a sequence sees a run of them.

#include <span>
#include <vector>

#include "kernels/memory.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class EncoderKeys {
 public:
  /// Of steps of at most `rows` rows; `shape`: of the encoder's layers.
  EncoderKeys(kernels::Buffers& buffers, const kernels::AttentionShape& shape, int64_t rows);
  /// Begins a step; `batch` is an encoder's.
  void begin(const StepBatch& batch);
  const kernels::KvView& view() const { return view_; }
  /// The sequences of a micro-batch.
  std::span<const kernels::AttentionSequence> sequences(const MicroBatch& of) const {
    return std::span(sequences_).subspan(of.sequences.first, of.sequences.count);
  }

 private:
  kernels::KvView view_;
  std::vector<uint32_t> table_;  ///< one for all sequences
  std::vector<kernels::AttentionSequence> sequences_;
};

}  // namespace moestro::engine
