#pragma once
// What ties a decoder to its encoder: the memory of a source, which is keys and values of the encoder's output for each
// layer of the decoder, in blocks of the KV cache, and the decoder's attention over it.

#include <span>

#include "services/worker/engine/sequence_mixer.h"

namespace moestro::engine {

class CrossAttention {
 public:
  /// Buffers are for steps of at most `step_tokens_max` rows.
  CrossAttention(const MathParts& parts, int64_t step_tokens_max);
  Status status() const { return buffers_.status(); }
  /// Begins a step; `batch` must live until it has ended.
  void begin(const StepBatch& batch) { batch_ = &batch; }

  /// Ends an encoder's pass: writes the memory of all its sequences. x: the residual stream after the last layer,
  /// [rows, hidden].
  void write_memory(const float* x);
  /// For the rows of a micro-batch of a decoder's step: x += attention(h) over the memory. h and x are of the step's
  /// first row.
  void compute(size_t layer, const MicroBatch& of, const float* h, const MixerOutput& out);

 private:
  MathParts p_;
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  float *normed_, *q_, *k_, *v_, *attended_;
};

}  // namespace moestro::engine
