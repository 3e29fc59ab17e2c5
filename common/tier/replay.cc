#include "common/tier/replay.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/lanes/step_driver.h"
#include "common/tier/forecast_need.h"
#include "common/tier/replay_tally.h"

namespace moestro::tier {
namespace {

/// What each sequence of a step chose at a layer, for a predictor.
class Choices {
 public:
  void of(const Routes& routes, const ReplayStep& step, int32_t layer) {
    counts_.resize(step.sequences.size());
    routes_.clear();
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      auto& counts = counts_[s];
      counts.clear();
      for (int32_t i = 0; i < step.sequences[s].tokens; ++i)
        for (const uint16_t expert : routes.chosen(step.tokens[step.first[s] + static_cast<size_t>(i)], layer)) {
          const auto it = std::ranges::find(counts, ExpertId{expert}, &activation::ActivationCount::expert);
          if (it != counts.end()) ++it->tokens;
          else counts.push_back({MoeLayerId{static_cast<uint32_t>(layer)}, ExpertId{expert}, 1});
        }
      std::ranges::sort(counts, {}, [](const auto& c) { return c.expert.value; });
    }
    for (size_t s = 0; s < step.sequences.size(); ++s) routes_.push_back({step.sequences[s].sequence, counts_[s]});
  }
  std::span<const prediction::SequenceRoutes> routes() const { return routes_; }

 private:
  std::vector<std::vector<activation::ActivationCount>> counts_;
  std::vector<prediction::SequenceRoutes> routes_;
};

void end_request(const Foresight& foresight, uint64_t sequence) {
  if (foresight.predictor != nullptr) foresight.predictor->end_sequence(sequence);
  if (foresight.ended) foresight.ended(static_cast<size_t>(sequence - 1));
}

/// A model whose layers all have experts; what they cost is in ReplayTimes.
lanes::ModelShape shape_of(const Routes& routes) {
  return {.layers = std::vector<lanes::LayerShape>(static_cast<size_t>(routes.layers), {.sparse = true})};
}

/// Runs steps as a worker does, over lanes without hardware: computing and waiting move a clock, and its memories are
/// filled meanwhile.
class VirtualDevice final : public lanes::TaskRunner {
 public:
  /// With a policy: a device with slots. `host` is the host memory below it, or null if that has everything. Without: a
  /// CPU, which takes experts from `host`.
  VirtualDevice(const Routes& routes, const ReplaySetup& setup, std::unique_ptr<policy::CachePolicy> policy,
                std::unique_ptr<policy::CachePolicy> low, const Foresight& foresight, ReplayHost* host)
      : routes_(routes),
        setup_(setup),
        foresight_(foresight),
        predictor_(foresight.predictor),
        options_(options()),
        forecast_(routes.layers, routes.experts),
        schedule_(lanes::make_layerwise_schedule(shape_of(routes))),
        machine_(*schedule_),
        driver_(clock_) {
    if (policy)
      device_ =
          std::make_unique<DeviceMemory>(options_, std::move(policy), std::move(low), setup.times, host,
                                         foresight.fetches);
    MOESTRO_CHECK(!setup.mixed || (device_ && host == nullptr && !routes.weights.empty()),
                  "low copies are of a device above host memory that has everything");
    MOESTRO_CHECK(setup.times.cpu_ratio <= 0 || (device_ && host == nullptr),
                  "a CPU helps a device above host memory that has everything");
    if (device_) stages_.emplace_back(*device_);
    if (host != nullptr && setup.prefetch) {
      host_stage_ = std::make_unique<HostStage>(*host, routes, device_.get());
      stages_.emplace_back(*host_stage_);
    }
    if (!device_)
      cpu_ = std::make_unique<HostMemory>(*host, static_cast<size_t>(routes.layers * routes.experts));
    source_ = device_ ? static_cast<ReplaySource*>(device_.get()) : cpu_.get();
    serving_.resize(static_cast<size_t>(routes.layers * routes.experts));
    tally_.emplace(routes, *source_, device_.get(), host, setup.warm);
  }

  ReplayReport run(std::span<const ReplayStep> steps) {
    int32_t running = 0;
    for (const ReplayStep& s : steps) {
      for (const size_t i : s.began) {
        ++running;
        for (const Stage& stage : stages_) stage.memory->sequence_began(running);
        tally_->request_began(static_cast<size_t>(s.sequences[i].sequence - 1));
      }
      step(s);
      running -= static_cast<int32_t>(s.ended.size());
      for (const size_t i : s.ended) end_request(foresight_, s.sequences[i].sequence);
    }
    return tally_->report();
  }

  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override {
    for (const lanes::TaskId id : tasks) {
      const lanes::Task task = machine_[id];  // a copy: a router adds to the tasks
      if (!lanes::is_layerwise(task)) return lanes::cannot_run("replay", task);
      if (lane == lanes::Lane::kStoreRead && !take(task)) {
        reads_.push_back(id);
        continue;
      }
      compute(task);
      ended.push_back(id);
    }
    return Status::ok();
  }

  /// What a layer foresees must not be read before what it lacks.
  Status flush() override {
    source_->request_missing(steps_, layer_);
    look_ahead();
    return Status::ok();
  }

  /// One that has arrived, the first that was asked for; the next one to arrive, if none has.
  Status wait_any(std::vector<lanes::TaskId>& ended) override {
    const Nanos begin = now();
    while (true) {
      source_->look(now());
      const auto there =
          std::ranges::find_if(reads_, [this](lanes::TaskId id) { return arrived(key_of(machine_[id])); });
      if (there != reads_.end()) {
        tally_->waited(now() - begin, source_->from_drive(key_of(machine_[*there])));
        ended.push_back(*there);
        reads_.erase(there);
        return Status::ok();
      }
      const auto next = next_event();
      MOESTRO_CHECK(next.has_value(), "a layer waits for what nothing brings");
      if (*next > now()) clock_.advance(*next - now());
      source_->advance(now());
    }
  }

 private:
  /// A memory that is filled ahead, and whether what is lately missing there is worth forecasts.
  struct Stage {
    explicit Stage(ReplayStage& of) : memory(&of), need(of.fits_all()) {}
    bool wants_forecasts() const { return need.need() == Need::kForecasts; }
    ReplayStage* memory;
    ForecastNeed need;
  };

  Nanos now() const { return clock_.now(); }
  Key full_of(int32_t layer, int32_t expert) const { return static_cast<Key>(layer * routes_.experts + expert); }
  /// Of the copy that serves.
  Key key_of(const lanes::Task& task) const { return key_of_expert(task.layer, task.expert); }
  Key key_of_expert(int32_t layer, int32_t expert) const { return serving_[full_of(layer, expert)]; }
  /// Of a full copy's bytes, a low one's.
  double low_share() const {
    return static_cast<double>(setup_.low_bytes) / static_cast<double>(setup_.expert_bytes);
  }
  TierOptions options() const {
    TierOptions o{routes_.layers, routes_.experts, setup_.slots, setup_.expert_bytes, setup_.chunk_bytes};
    o.link_bytes_per_s = setup_.times.link_bytes_per_s, o.link_latency = setup_.times.link_latency;
    o.prefetch = setup_.prefetch, o.keep = setup_.keep, o.how = setup_.how;
    o.low_slots = setup_.low_slots, o.low_bytes = setup_.low_bytes;
    return o;
  }
  /// The device is busy for so long; its memories go on being filled.
  void pass(Nanos took) {
    clock_.advance(took);
    source_->advance(now());
  }
  void compute(const lanes::Task& task) {
    const ReplayTimes& times = setup_.times;
    switch (task.kind) {
      case lanes::TaskKind::kAttention:
        return pass(times.attention + times.attention_token * (static_cast<int64_t>(step_->tokens.size()) - 1));
      case lanes::TaskKind::kRouter: return route(task.layer);
      case lanes::TaskKind::kExpert:
        look_ahead();
        if (cpu_end(key_of(task))) return;
        pass(times.of_expert(task.rows));
        return source_->released(now(), key_of(task));
      case lanes::TaskKind::kCombine: return look_ahead();
      case lanes::TaskKind::kHead: return pass(times.step);
      default: return;  // its time is in those of the others
    }
  }
  bool take(const lanes::Task& task) {
    const auto wanted = std::ranges::find(wanted_, key_of(task), &DeviceTier::Wanted::key);
    const Found found = source_->take(*wanted);
    const bool low = wanted->key >= serving_.size();
    tally_->used(task.layer, found, low ? low_share() : 1.0);
    return found == Found::kHit;
  }
  void forecast(int32_t layer) {
    if (!told_ || std::ranges::none_of(stages_, &Stage::wants_forecasts)) return;
    predictor_->forecast(layer, forecast_);
    for (Stage& stage : stages_)
      if (stage.wants_forecasts() && stage.memory->forecast(now(), layer, forecast_)) stage.need.useful();
  }
  /// Once everything that the layer lacks has been requested.
  void look_ahead() {
    if (std::exchange(forecast_due_, false)) forecast(layer_);
  }

  void step(const ReplayStep& s) {
    step_ = &s;
    ++steps_;
    tally_->begin_step(s);
    told_ = false;
    for (Stage& stage : stages_) {
      const uint64_t count = stage.memory->begin_step(now(), s.scan);
      const Need need = predictor_ != nullptr ? stage.need.begin_step(count) : Need::kNothing;
      told_ = told_ || need != Need::kNothing;
      if (need != Need::kForecasts) stage.memory->unforeseen(now());
    }
    if (told_) predictor_->begin_iteration(s.sequences);
    forecast(-1);
    machine_.begin({.tokens = static_cast<int64_t>(s.tokens.size()), .logit_rows = 1});
    const auto totals = driver_.run(machine_, *this, nullptr);
    MOESTRO_CHECK(totals.is_ok(), "a device without hardware does not fail");
    if (told_) predictor_->end_iteration();
    tally_->end_step(totals->elapsed, totals->stalled);
  }

  void route(int32_t l) {
    const ReplayStep& s = *step_;
    uses_of(routes_, s, l, uses_, setup_.mixed ? &*setup_.mixed : nullptr);
    choose(l);
    wanted_.clear(), routed_.clear();
    for (size_t i = 0; i < uses_.size(); ++i) {
      const StepUse& use = uses_[i];
      const bool skipped = choices_of_layer_[i].way == Way::kSkip;
      wanted_.push_back({key_of_expert(l, use.expert), weight(s, use), use.want, skipped});
      if (!skipped) routed_.push_back({use.expert, use.tokens});
    }
    for (Stage& stage : stages_)
      if (!stage.memory->routed(now(), l, wanted_)) stage.need.missed();
    if (told_) {
      choices_.of(routes_, s, l);
      predictor_->routed(l, choices_.routes());
    }
    layer_ = l, forecast_due_ = true;
    machine_.routed(l, 0, routed_);
  }
  /// How the layer's experts are served. The CPU begins with what it computes.
  void choose(int32_t l) {
    const bool has_ways = setup_.mixed || setup_.times.cpu_ratio > 0;
    choices_of_layer_.clear(), cpu_ends_.clear();
    for (const StepUse& use : uses_)
      choices_of_layer_.push_back({.full = full_of(l, use.expert),
                                   .want = use.want,
                                   .cpu = step_->scan ? std::nullopt : setup_.times.on_cpu(use.tokens)});
    if (device_ && has_ways) device_->choose(choices_of_layer_);
    Nanos cpu = now();
    for (size_t i = 0; i < uses_.size(); ++i) {
      const DeviceTier::Choice& choice = choices_of_layer_[i];
      serving_[choice.full] = options_.serving(choice.full, choice.way).value_or(choice.full);
      if (choice.way == Way::kCpu) cpu += *choice.cpu, cpu_ends_.emplace_back(choice.full, cpu);
      if (has_ways) tally_->served(uses_[i].tokens, choice.way);
    }
  }
  /// When the CPU ends an expert of this layer; nullopt: it is the device's.
  std::optional<Nanos> cpu_end(Key key) const {
    const auto found = std::ranges::find(cpu_ends_, key, &std::pair<Key, Nanos>::first);
    return found != cpu_ends_.end() ? std::optional(found->second) : std::nullopt;
  }
  bool arrived(Key key) {
    const auto end = cpu_end(key);
    return end ? *end <= now() : source_->arrived(key);
  }
  /// Of what is waited for: when something arrives, or the CPU ends something.
  std::optional<Nanos> next_event() {
    std::optional<Nanos> next = source_->next_event();
    for (const auto& [key, end] : cpu_ends_)
      if (end > now() && (!next || end < *next)) next = end;
    return next;
  }
  /// A prompt's chunk counts as one token, shared out over the experts it went to. A step that decodes uses an expert
  /// once, however many of its tokens went there (as engine::ExpertWatch has it).
  float weight(const ReplayStep& s, const StepUse& use) const {
    return s.scan ? static_cast<float>(use.tokens) / static_cast<float>(s.tokens.size()) : 1.0F;
  }

  const Routes& routes_;
  const ReplaySetup& setup_;
  const Foresight& foresight_;
  prediction::Predictor* predictor_;
  const TierOptions options_;
  std::unique_ptr<DeviceMemory> device_;   ///< null: a CPU
  std::unique_ptr<HostStage> host_stage_;  ///< null: nothing is read ahead
  std::unique_ptr<HostMemory> cpu_;
  ReplaySource* source_ = nullptr;         ///< device_ or cpu_
  std::vector<Stage> stages_;
  prediction::Forecast forecast_;
  std::unique_ptr<lanes::Schedule> schedule_;
  lanes::StepMachine machine_;
  ManualClock clock_;
  lanes::StepDriver driver_;
  std::optional<ReplayTally> tally_;
  const ReplayStep* step_ = nullptr;
  uint64_t steps_ = 0;
  bool told_ = false;          ///< the predictor has been told of this step
  int32_t layer_ = 0;          ///< that was routed last
  bool forecast_due_ = false;  ///< of that layer
  Choices choices_;
  std::vector<StepUse> uses_;
  std::vector<Key> serving_;  ///< by expert, of the layer that was routed last
  std::vector<DeviceTier::Choice> choices_of_layer_;     ///< as uses_
  std::vector<std::pair<Key, Nanos>> cpu_ends_;          ///< of that layer: what the CPU computes, and until when
  std::vector<DeviceTier::Wanted> wanted_;
  std::vector<lanes::RoutedExpert> routed_;
  std::vector<lanes::TaskId> reads_;  ///< not arrived, in the order in which they were asked for
};

}  // namespace

void train(const Routes& routes, std::span<const size_t> requests, const Foresight& foresight) {
  if (foresight.predictor == nullptr) return;
  prediction::Predictor& predictor = *foresight.predictor;
  Choices choices;
  prediction::Forecast forecast(routes.layers, routes.experts);
  for (const ReplayStep& step : plan_steps(routes, requests, 1, INT32_MAX)) {
    predictor.begin_iteration(step.sequences);
    predictor.forecast(-1, forecast);
    for (int32_t layer = 0; layer < routes.layers; ++layer) {
      choices.of(routes, step, layer);
      predictor.routed(layer, choices.routes());
      predictor.forecast(layer, forecast);
    }
    predictor.end_iteration();
    for (const size_t i : step.ended) end_request(foresight, step.sequences[i].sequence);
  }
}

ReplayReport replay(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup,
                    std::unique_ptr<policy::CachePolicy> policy, const Foresight& foresight, ReplayHost* host,
                    std::unique_ptr<policy::CachePolicy> low) {
  VirtualDevice device(routes, setup, std::move(policy), std::move(low), foresight, host);
  return device.run(plan_steps(routes, requests, setup.batch, setup.chunk));
}

ReplayReport replay_on_cpu(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup,
                           const Foresight& foresight, ReplayHost& host) {
  VirtualDevice device(routes, setup, nullptr, nullptr, foresight, &host);
  return device.run(plan_steps(routes, requests, setup.batch, setup.chunk));
}

}  // namespace moestro::tier
