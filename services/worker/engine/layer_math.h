#pragma once
// The computation of a layer on the rows of a step, without its experts, for any backend, in that backend's memory.

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class LayerMath {
 public:
  struct Parts {
    const model::ModelSpec& spec;
    const DenseWeights& weights;
    kernels::Ops& ops;
    kernels::Memory& memory;
    KvCache& cache;
    const RopeTables& rope;
  };
  LayerMath(const Parts& parts, int64_t step_tokens_max);
  /// Whether all buffers could be allocated.
  Status status() const { return buffers_.status(); }

  /// Begins a step; `batch` must live until it has ended.
  void begin(const StepBatch& batch);

  // x: the residual stream, [rows, hidden].

  void embed(float* x);
  /// x += attention(norm(x)) for the rows of a micro-batch. Their rows of h() are then the input of the layer's experts
  /// or MLP.
  void attention(size_t layer, const MicroBatch& of, float* x);
  /// Computes h() again from the stream after attention().
  void norm_after_attention(size_t layer, const float* x);
  const float* h() const { return h_; }
  /// The choices of a sparse layer for these rows: [rows.count, top_k].
  void router(size_t layer, TokenRange rows, int32_t* ids, float* weights);
  void dense_mlp(size_t layer, float* x);
  /// Computed from h(), and kept until it is added.
  void shared_expert(size_t layer);
  void add_shared_expert(size_t layer, float* x);

 private:
  /// Sends the rotation of queries for the sinks' keys in layers with this window, once for all layers with the same
  /// window.
  void send_sink_rotation(const kernels::AttentionShape& shape);
  void project_qkv(const model::AttentionSpec& spec, const LayerWeights& w, TokenRange rows);
  /// The queries rotated for the sinks' keys, from q_ before it is rotated; null if no row of the step has a gap.
  const float* rotate_for_sinks(size_t layer, TokenRange rows);
  void run_mlp(const MlpWeights& w, float* out);
  void norm(const float* x, const float* weight, TokenRange rows);
  TokenRange all_rows() const { return {0, static_cast<uint32_t>(rows_)}; }

  Parts p_;
  int64_t hidden_, rows_ = 0;
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  // h: normed input of a block; out: a block's output before it is added.
  float *h_, *out_, *q_, *k_, *v_, *attended_, *gate_, *up_, *router_logits_, *shared_out_, *shared_logit_, *cos_,
      *sin_;
  int64_t sink_window_ = 0;  ///< window of sink_cos_ and sink_sin_; 0: none
  float *sink_q_ = nullptr, *sink_cos_ = nullptr, *sink_sin_ = nullptr;
  std::vector<float> sink_cos_list_, sink_sin_list_;
};

}  // namespace moestro::engine
