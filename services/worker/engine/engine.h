#pragma once
// The inference engine: computes steps of tokens, and returns tokens and scores.

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/lanes/step_driver.h"
#include "common/lanes/timeline.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"
#include "services/worker/engine/expert_watch.h"
#include "services/worker/engine/step_plan.h"
#include "store/blob_source.h"

namespace moestro::engine {

struct Backend;  // pass.h

/// Routes of the tokens of one sequence in one step, for the routing trace.
struct RoutedTokens {
  SequenceId sequence;
  bool decode = false;
  bool text_ends = false;  ///< how many of them count is known when the sequence is released
  int64_t first_position = 0, tokens = 0;
  int64_t moe_layers = 0, top_k = 0;
  int64_t step_tokens = 0, first_row = 0;
  std::span<const int32_t> ids;     ///< of the whole step: [moe_layers][step_tokens][top_k]
  std::span<const float> weights;
};
using RouteObserver = std::function<void(const RoutedTokens&)>;
using ReleaseObserver = std::function<void(const ReleasedSequence&)>;

class Engine {
 public:
  /// Leases the dense weights and makes all buffers. `source`, `ops` and `clock` outlive the engine.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, store::BlobSource& source,
                                                kernels::Ops& ops, const Clock& clock);
  /// On a backend other than the CPU.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, store::BlobSource& source,
                                                const Backend& backend, const Clock& clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const model::ModelSpec& spec() const;
  const EngineLimits& limits() const;
  /// Bytes of the KV cache.
  int64_t kv_bytes() const;
  int64_t state_bytes() const;    ///< of states of sequences
  int64_t kv_host_bytes() const;  ///< of its further blocks in host memory
  /// Bytes of weights that a step reads, as stored. Norms and biases are not counted.
  struct WeightTraffic {
    double layer_bytes = 0;   ///< of every step: attention, router, dense and shared parts of all layers; of an
                              ///< encoder-decoder model, of every step with targets: of the decoder's
    double source_bytes = 0;  ///< of every step with sources: of the encoder's layers, and what makes a memory
    double head_bytes = 0;    ///< of a step that needs logits
    double token_bytes = 0;   ///< of every token: its row of the embedding
    double expert_bytes = 0;  ///< of every expert of a layer that a token was routed to
  };
  WeightTraffic weight_traffic() const;

  /// Runs one plan. An error concerns the whole plan; an error of one sequence is in its outcome. `out` is overwritten
  /// and keeps its memory: if the same object is used at every step, decoding allocates nothing.
  Status step(const StepPlan& plan, StepOutcome& out);
  /// Asked between two layers of step(); null: nothing comes between. Outlives the engine's steps.
  void set_breaks(lanes::Breaks* breaks);
  /// Runs another plan while the step at hand has parked: from Breaks::take(), where limits().overtaking_tokens_max is
  /// above 0. It builds on no plan, releases and copies nothing, and has no sequence of the plan that has parked. Each
  /// computes what it computes alone.
  Status overtake(const StepPlan& plan, StepOutcome& out);
  void release(std::span<const ReleasedSequence> released);
  /// Forgets every sequence and all KV contents (a new KV epoch).
  void forget_all();

  void set_timeline(lanes::Timeline* timeline);  ///< may be null; outlives the engine
  void set_expert_watch(ExpertWatch* watch);    ///< may be null; outlives the engine
  void set_route_observer(RouteObserver observer);
  /// The observer is called for every released sequence.
  void set_release_observer(ReleaseObserver observer);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::engine
