#pragma once
// Takes a step's rows through the model: on the CPU as a schedule's task graph, on a device as launches on its streams.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/lanes/step_driver.h"
#include "services/worker/engine/engine_options.h"
#include "services/worker/engine/expert_dispatch.h"
#include "services/worker/engine/expert_watch.h"
#include "services/worker/engine/kv_link.h"
#include "services/worker/engine/layer_math.h"
#include "services/worker/engine/layer_stream.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

/// What a schedule needs to know of a model at its precisions. experts: by MoE layer.
lanes::ModelShape model_shape(const model::ModelSpec& spec, const DenseWeights& weights,
                              const std::vector<ExpertLayout>& experts, const KvCache& cache);

/// The size of a checked step.
lanes::StepShape step_shape(const StepBatch& batch);

class Pass {
 public:
  virtual ~Pass() = default;

  /// Computes all rows of a checked step, at least one. `failed` and `outcomes` have one entry per sequence of the
  /// plan. `failed` receives the errors of sequences whose expert cannot be loaded or whose activations are not finite;
  /// `outcomes` receives the sampled tokens and scores of the others. An error concerns the whole step; the watch has
  /// then been told to abandon it.
  virtual Result<lanes::ExecutionTotals> run(const StepPlan& plan, const StepBatch& batch, std::vector<Status>& failed,
                                             std::vector<SequenceOutcome>& outcomes) = 0;

  /// Copies between blocks of the cache, in order, all before the next step's computation. Ids are already checked.
  virtual void copy_kv(std::span<const KvCopy> copies) = 0;

  // Of a backend whose steps park (Backend::parks), while a step runs:

  /// What may come between two of its layers; null: nothing. Outlives this.
  virtual void set_breaks(lanes::Breaks* breaks) { (void)breaks; }
  /// The last MoE layer whose routers have chosen; -1: none yet.
  virtual int32_t routed_layer() const { return -1; }
  /// Another step of this worker has come between.
  virtual void resume(PlanId plan) { (void)plan; }

  virtual void set_watch(ExpertWatch* watch) = 0;              ///< may be null; outlives this
  virtual void set_timeline(lanes::Timeline* timeline) = 0;    ///< may be null; outlives this

  // For the last step:

  /// Its choices: [moe layer][row][rank]. Weights in the same shape.
  virtual std::span<const int32_t> routes() const = 0;
  virtual std::span<const float> route_weights() const = 0;
  /// Sequences that failed because activations or logits are not finite.
  virtual uint32_t not_finite() const = 0;
  virtual DeviceWork device_work() const { return {}; }
};

/// What a pass is made of; all of it outlives the pass.
struct PassParts {
  const EngineOptions& options;
  LayerMath::Parts math;
  const ExpertLayouts& layouts;
  ExpertDispatch& experts;
  lanes::ModelShape shape;
  const Clock& clock;
  KvLink* kv_link = nullptr;  ///< not null: the home of the KV cache is host memory, and the pass moves it
  LayerStream* stream = nullptr;  ///< not null: dense weights take turns in memory, and the pass holds them by layer
  kernels::Ops* host_ops = nullptr;  ///< ScheduleKind::kCgo: for what the host computes beside the device
};

/// What an engine computes with. Everything outlives the engine.
struct Backend {
  kernels::Ops& ops;
  kernels::Memory& memory;  ///< of `ops`
  std::function<Result<std::unique_ptr<Pass>>(const PassParts&)> make_pass;
  /// Null: the KV cache lies in `memory`, whatever home the options say.
  KvLink* kv_link = nullptr;
  bool parks = false;  ///< its steps may give way between two layers
  kernels::Ops* host_ops = nullptr;  ///< not null: the host can compute beside the device, with these
  bool dense_over_link = false;  ///< dense weights that take turns do so in a device's memory, and cross its link
};
/// `kv_link`: of an emulated device whose KV has its home in host memory. `host_ops`: what the host has beside it.
Backend cpu_backend(kernels::Ops& ops, KvLink* kv_link = nullptr, kernels::Ops* host_ops = nullptr);

}  // namespace moestro::engine
