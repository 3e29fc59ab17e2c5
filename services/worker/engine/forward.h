#pragma once
// The tasks of a step on the CPU: what each kind of task computes, on buffers that are made once.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/lanes/executor.h"
#include "common/lanes/schedule.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"
#include "services/worker/engine/expert_dispatch.h"
#include "services/worker/engine/expert_watch.h"
#include "services/worker/engine/finite_guard.h"
#include "services/worker/engine/gate_lookahead.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

/// What the schedule needs to know of a model at its precisions.
lanes::ModelShape model_shape(const model::ModelSpec& spec, const DenseWeights& weights, const ExpertLayout& experts,
                              const KvCache& cache);

class Forward final : public lanes::TaskRunner {
 public:
  struct Parts {
    const model::ModelSpec& spec;
    const DenseWeights& weights;
    const ExpertLayout& layout;
    kernels::Ops& ops;
    KvCache& cache;
    ExpertDispatch& experts;
    lanes::Schedule& schedule;
    const RopeTables& rope;
  };
  Forward(const Parts& parts, int64_t step_tokens_max, bool poison);

  /// The step that the following tasks belong to. All three live until it has ended; `failed` holds one Status per sequence of the
  /// plan and receives those whose expert cannot be had, and those whose activations become NaN or infinite.
  void begin(PlanId plan, const StepBatch& batch, lanes::TaskGraph& graph, std::vector<Status>& failed);
  void abandon();
  /// May be null; outlives this.
  void set_watch(ExpertWatch* watch);

  /// After the last layer: [rows, hidden], not yet normed.
  const float* hidden() const { return x_.data(); }
  /// Sequences of the step that failed because their activations are not finite.
  uint32_t not_finite() const { return guard_.not_finite(); }
  /// The step's choices: [moe layer][row][rank]. Weights in the same shape.
  std::span<const int32_t> routes() const { return {route_ids_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)}; }
  std::span<const float> route_weights() const { return {route_weights_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)}; }

  Status run(lanes::TaskId id, const lanes::Task& task) override;
  Result<bool> start(lanes::TaskId id, const lanes::Task& task) override;
  Status flush() override { return p_.experts.request_missing(); }
  Result<lanes::TaskId> wait_any() override;

 private:
  void embed();
  void attention(size_t layer);
  /// The queries as the sinks' keys meet them, from q_ before it is rotated; null where no row has a gap.
  const float* rotate_for_sinks(size_t layer);
  void project_qkv(const model::AttentionSpec& spec, const LayerWeights& w);
  void route(size_t layer);
  void tell_watch(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> routed);
  void run_mlp(const MlpWeights& w, const float* x, float* out);
  void dense_mlp(size_t layer);
  void shared_expert(size_t layer);
  void expert(size_t layer, int32_t expert);
  void combine(size_t layer);
  int32_t* layer_routes(size_t layer);
  float* layer_weights(size_t layer);
  void clear_rows(std::span<const kernels::RoutedRow> rows);
  void fail_users(int32_t expert, const Status& why);

  Parts p_;
  bool poison_;
  ExpertWatch* watch_ = nullptr;
  std::optional<GateLookahead> lookahead_;
  int64_t step_tokens_max_, hidden_, top_k_ = 0, moe_layers_ = 0, rows_ = 0;
  const StepBatch* batch_ = nullptr;
  lanes::TaskGraph* graph_ = nullptr;
  FiniteGuard guard_;
  // x: the residual stream; h: normed input of a block; out: a block's output before it is added.
  std::vector<float> x_, h_, out_, q_, k_, v_, attended_, gate_, up_, router_logits_, shared_out_, shared_logit_, expert_rows_;
  std::vector<float> sink_q_, sink_cos_, sink_sin_;
  std::vector<int32_t> route_ids_;
  std::vector<float> route_weights_;
};

}  // namespace moestro::engine
