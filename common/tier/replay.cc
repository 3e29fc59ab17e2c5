#include "common/tier/replay.h"

#include <algorithm>

#include "common/check.h"
#include "common/lanes/step_driver.h"
#include "common/tier/forecast_need.h"
#include "common/tier/virtual_link.h"

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

/// Runs steps as a worker does, over lanes without hardware: computing and waiting move a clock, and a virtual link
/// carries experts meanwhile.
class VirtualDevice final : public lanes::TaskRunner {
 public:
  VirtualDevice(const Routes& routes, const ReplaySetup& setup, std::unique_ptr<policy::CachePolicy> policy,
                const Foresight& foresight)
      : routes_(routes),
        setup_(setup),
        foresight_(foresight),
        predictor_(foresight.predictor),
        tier_(options(), std::move(policy)),
        link_(tier_, setup.times.link_bytes_per_s, setup.times.link_latency),
        forecast_(routes.layers, routes.experts),
        need_(int64_t{setup.slots} >= int64_t{routes.layers} * routes.experts && setup.keep),
        schedule_(lanes::make_layerwise_schedule(shape_of(routes))),
        machine_(*schedule_),
        driver_(clock_) {
    tier_.sources_always_ready();
    report_.layer_uses.resize(static_cast<size_t>(routes.layers)),
        report_.layer_hits.resize(static_cast<size_t>(routes.layers));
    by_request_.resize(routes.requests.size());
  }

  ReplayReport run(std::span<const ReplayStep> steps) {
    int32_t running = 0;
    std::vector<size_t> order;
    for (const ReplayStep& s : steps) {
      for (const size_t i : s.began) {
        tier_.sequence_began(++running);
        order.push_back(static_cast<size_t>(s.sequences[i].sequence - 1));
      }
      step(s);
      running -= static_cast<int32_t>(s.ended.size());
      for (const size_t i : s.ended) end_request(foresight_, s.sequences[i].sequence);
    }
    for (const size_t request : order) {
      const auto [uses, hits] = by_request_[request];
      if (uses > 0) report_.request_hit_rate.push_back(static_cast<double>(hits) / static_cast<double>(uses));
    }
    report_.counters = tier_.counters();
    return report_;
  }

  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override {
    for (const lanes::TaskId id : tasks) {
      const lanes::Task task = machine_[id];  // a copy: a router adds to the tasks
      if (lane == lanes::Lane::kStoreRead && !tier_.slot_of(key_of(task))) {
        reads_.push_back(id);
        continue;
      }
      compute(task);
      ended.push_back(id);
    }
    return Status::ok();
  }

  /// One that has arrived, the first that was asked for; the link's next one, if none has.
  Status wait_any(std::vector<lanes::TaskId>& ended) override {
    while (true) {
      const auto there = std::ranges::find_if(
          reads_, [this](lanes::TaskId id) { return tier_.slot_of(key_of(machine_[id])).has_value(); });
      if (there != reads_.end()) {
        ended.push_back(*there);
        reads_.erase(there);
        return Status::ok();
      }
      const auto arrived = link_.finish();
      MOESTRO_CHECK(arrived.has_value(), "a layer waits for an idle link");
      if (*arrived > now()) clock_.advance(*arrived - now());
    }
  }

 private:
  Nanos now() const { return clock_.now(); }
  Key key_of(const lanes::Task& task) const { return static_cast<Key>(task.layer * routes_.experts + task.expert); }
  TierOptions options() const {
    TierOptions o{routes_.layers, routes_.experts, setup_.slots, setup_.expert_bytes, setup_.chunk_bytes};
    o.link_bytes_per_s = setup_.times.link_bytes_per_s, o.link_latency = setup_.times.link_latency;
    o.prefetch = setup_.prefetch, o.keep = setup_.keep, o.how = setup_.how;
    return o;
  }
  /// The device is busy for so long; the link goes on.
  void pass(Nanos took) {
    clock_.advance(took);
    link_.advance(now());
  }
  void compute(const lanes::Task& task) {
    const ReplayTimes& times = setup_.times;
    switch (task.kind) {
      case lanes::TaskKind::kAttention:
        return pass(times.attention + times.attention_token * (static_cast<int64_t>(step_->tokens.size()) - 1));
      case lanes::TaskKind::kRouter: return route(task.layer);
      case lanes::TaskKind::kExpert:
        pass(times.expert + times.expert_token * (task.rows - 1));
        tier_.released(now(), key_of(task));
        return link_.poke(now());
      case lanes::TaskKind::kHead: return pass(times.step);
      default: return;  // its time is in those of the others
    }
  }
  void foresee(int32_t layer) {
    if (predictor_ == nullptr || need_.need() != Need::kForecasts) return;
    predictor_->forecast(layer, forecast_);
    tier_.foresee(now(), layer, forecast_);
    need_.useful();  // as a device says: what is not likely enough for a copy still says what to keep
    link_.poke(now());
  }

  void step(const ReplayStep& s) {
    step_ = &s;
    const TierCounters before = tier_.counters();
    if (s.scan) note_held();
    tier_.begin_step(now(), s.scan);
    const Need need = predictor_ != nullptr ? need_.begin_step(before.moved_bytes) : Need::kNothing;
    if (need != Need::kNothing) predictor_->begin_iteration(s.sequences);
    if (need != Need::kForecasts) tier_.unforeseen();
    foresee(-1);
    link_.poke(now());
    machine_.begin({.tokens = static_cast<int64_t>(s.tokens.size()), .logit_rows = 1});
    const auto totals = driver_.run(machine_, *this, nullptr);
    MOESTRO_CHECK(totals.is_ok(), "a device without hardware does not fail");
    if (need != Need::kNothing) predictor_->end_iteration();
    count_step(s, *totals, before);
  }

  void count_step(const ReplayStep& s, const lanes::ExecutionTotals& totals, const TierCounters& before) {
    const TierCounters after = tier_.counters();
    if (s.scan) {
      ++report_.prompt_steps, report_.prompt_tokens += s.tokens.size();
      report_.prompt_time += totals.elapsed, report_.prompt_stall += totals.stalled;
      report_.prompt_moved_bytes += after.moved_bytes - before.moved_bytes;
      report_.prompt_held += held_.size(), after_prompt_ = ReplayReport::kAfterPrompt;
      for (const Key key : held_) report_.prompt_kept += tier_.slot_of(key).has_value();
    } else {
      ++report_.steps, report_.tokens += s.tokens.size();
      report_.time += totals.elapsed, report_.stall += totals.stalled;
      report_.moved_bytes += after.moved_bytes - before.moved_bytes,
          report_.wasted_bytes += after.wasted_bytes - before.wasted_bytes;
    }
  }

  void note_held() {
    held_.clear();
    for (Key key = 0; key < static_cast<Key>(routes_.layers * routes_.experts); ++key)
      if (tier_.slot_of(key)) held_.push_back(key);
  }

  void route(int32_t l) {
    const ReplayStep& s = *step_;
    uses_of(routes_, s, l, uses_);
    wanted_.clear(), routed_.clear();
    for (const StepUse& use : uses_) {
      wanted_.push_back({static_cast<Key>(l * routes_.experts + use.expert), weight(s, use)});
      routed_.push_back({use.expert, use.tokens});
    }
    found_.resize(wanted_.size());
    tier_.routed(now(), l, wanted_, found_);
    count(s, l);
    link_.poke(now());
    if (std::ranges::any_of(found_, [](Found f) { return f != Found::kHit; })) need_.missed();
    if (predictor_ != nullptr && need_.need() != Need::kNothing) {
      choices_.of(routes_, s, l);
      predictor_->routed(l, choices_.routes());
    }
    foresee(l);
    machine_.routed(l, routed_);
  }
  /// A prompt's chunk counts as one token, shared out over the experts it went to. A step that decodes uses an expert
  /// once, however many of its tokens went there (as engine::ExpertWatch has it).
  float weight(const ReplayStep& s, const StepUse& use) const {
    return s.scan ? static_cast<float>(use.tokens) / static_cast<float>(s.tokens.size()) : 1.0F;
  }
  void count(const ReplayStep& s, int32_t l) {
    if (s.scan) {
      report_.prompt_uses += found_.size();
      return;
    }
    if (l == 0 && after_prompt_ > 0) --after_prompt_, counts_after_ = true;
    else if (l == 0) counts_after_ = false;
    for (size_t i = 0; i < found_.size(); ++i) {
      const bool hit = found_[i] == Found::kHit;
      ++report_.uses, report_.hits += hit, report_.late += found_[i] == Found::kLate;
      report_.after_uses += counts_after_, report_.after_hits += counts_after_ && hit;
      ++report_.layer_uses[static_cast<size_t>(l)], report_.layer_hits[static_cast<size_t>(l)] += hit;
      if (s.sequences.size() != 1) continue;
      auto& [uses, hits] = by_request_[static_cast<size_t>(s.sequences[0].sequence - 1)];
      ++uses, hits += hit;
    }
  }

  const Routes& routes_;
  const ReplaySetup& setup_;
  const Foresight& foresight_;
  prediction::Predictor* predictor_;
  DeviceTier tier_;
  VirtualLink link_;
  prediction::Forecast forecast_;
  ForecastNeed need_;
  std::unique_ptr<lanes::Schedule> schedule_;
  lanes::StepMachine machine_;
  ManualClock clock_;
  lanes::StepDriver driver_;
  ReplayReport report_;
  const ReplayStep* step_ = nullptr;
  Choices choices_;
  std::vector<StepUse> uses_;
  std::vector<DeviceTier::Wanted> wanted_;
  std::vector<Found> found_;
  std::vector<lanes::RoutedExpert> routed_;
  std::vector<lanes::TaskId> reads_;  ///< not arrived, in the order in which they were asked for
  std::vector<Key> held_;      ///< before a step of prompts
  int after_prompt_ = 0;       ///< decoding steps that still come next after one
  bool counts_after_ = false;  ///< this is such a step
  std::vector<std::pair<uint64_t, uint64_t>> by_request_;
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
                    std::unique_ptr<policy::CachePolicy> policy, const Foresight& foresight) {
  VirtualDevice device(routes, setup, std::move(policy), foresight);
  return device.run(plan_steps(routes, requests, setup.batch, setup.chunk));
}

}  // namespace moestro::tier
