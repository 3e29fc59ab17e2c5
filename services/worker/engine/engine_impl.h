#pragma once
// What an engine is made of. For the engine's own files.

#include <optional>
#include <utility>
#include <vector>

#include "services/worker/engine/engine.h"
#include "services/worker/engine/layer_stream.h"
#include "services/worker/engine/micro_batch_cut.h"
#include "services/worker/engine/pass.h"
#include "services/worker/engine/plan_check.h"
#include "services/worker/engine/route_memory.h"
#include "services/worker/engine/sequence_states.h"

namespace moestro::engine {

/// What a step needs for itself while it runs.
struct Track {
  EngineOptions options;  ///< of the pass
  std::optional<ExpertDispatch> experts;
  std::unique_ptr<Pass> pass;
  std::vector<TokenRange> ranges;
  std::vector<Status> failed;
  StepBatch batch;
  StepBatch sources;  ///< rows of sources: an encoder-decoder's step is a pass of these, then one of `batch`
  MicroBatchCut cut;  ///< of the schedules for throughput
  std::vector<WatchedSequence> watched;
};

struct Engine::Impl {
  EngineOptions options;
  store::BlobSource& source;
  Backend backend;
  const Clock& clock;
  model::ModelDescription description;
  EngineLimits limits;
  ExpertLayouts layouts;
  std::optional<DenseWeights> weights;
  std::optional<LayerStream> stream;  ///< none: all dense weights stay in memory
  std::optional<KvCache> cache;
  std::optional<SequenceStates> states;
  RouteMemory routes;
  RopeTables rope;
  lanes::ModelShape shape;
  RouteObserver observer;
  ReleaseObserver release_observer;
  ExpertWatch* watch = nullptr;

  SequenceTable sequences;
  PlanId last_done;  ///< the plan before, if it did not fail as a whole
  const StepPlan* running = nullptr;  ///< of the step on `usual`
  Track usual, overtaking;            ///< overtaking: empty if no step overtakes
  Track* on = &usual;                 ///< the step at hand is on it
  store::BlobSource::Counters overtaken;  ///< of all steps on `overtaking`
  std::vector<uint32_t> count_scratch;
  std::vector<activation::ActivationCount> found_counts;

  Impl(const EngineOptions& o, store::BlobSource& s, Backend b, const Clock& c)
      : options(o), source(s), backend(std::move(b)), clock(c) {}

  Status load();
  Result<std::vector<ExpertLayout>> layouts_of(DType precision) const;
  Status load_low_copies();
  Status make_stream();
  Result<ExpertDispatch> make_dispatch(DType precision);
  Status make_track(Track& track, int64_t step_tokens_max);
  Status check_overtaking() const;
  void release(std::span<const ReleasedSequence> released);
  Status copy_kv(const StepPlan& plan);
  Status prepare(const StepPlan& plan, PlanId before);
  Status check_schedule();
  Status check_cgo() const;
  Status check_overtakes(const StepPlan& plan) const;
  Status run(const StepPlan& plan, PlanId before, StepOutcome& out);
  Status admit(const StepPlan& plan, uint32_t index);
  Status admit_source(const StepPlan& plan, uint32_t index, SequenceState& state);
  StepBatch& batch_of(const PlanSequence& s) { return s.source ? on->sources : on->batch; }
  bool moves_kv() const;  ///< this step brings KV to the device, in its places
  Status cut_before(uint32_t index, const SequenceState& state, int64_t first);
  bool in_turn() const {
    return options.micro_batches == MicroBatches::kInTurn || options.schedule != ScheduleKind::kLayerwise;
  }
  Status execute(const StepPlan& plan, StepBatch& of, StepOutcome& out);
  std::span<const WatchedSequence> watched_sequences(const StepPlan& plan, const StepBatch& of);
  /// Not of a decoder with an encoder: its routes depend on the source, and its blocks are not shared.
  bool knows_routes() const { return limits.visible.window == 0 && !limits.encoder_decoder; }
  void tell_found(const StepPlan& plan);
  void finish(const StepPlan& plan, uint32_t index, SequenceOutcome& out);
  void count_stack(const PlanSequence& s, TokenRange rows, SequenceState& state, SequenceOutcome& out);
  void lose_kv(const StepPlan& plan, uint32_t index);
};

}  // namespace moestro::engine
