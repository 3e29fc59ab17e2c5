#include "common/tier/replay.h"

#include <algorithm>

#include "common/check.h"
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

class Machine {
 public:
  Machine(const Routes& routes, const ReplaySetup& setup, std::unique_ptr<policy::CachePolicy> policy,
          const Foresight& foresight)
      : routes_(routes),
        setup_(setup),
        foresight_(foresight),
        predictor_(foresight.predictor),
        tier_(options(), std::move(policy)),
        link_(tier_, setup.times.link_bytes_per_s, setup.times.link_latency),
        forecast_(routes.layers, routes.experts),
        need_(int64_t{setup.slots} >= int64_t{routes.layers} * routes.experts && setup.keep) {
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

 private:
  TierOptions options() const {
    TierOptions o{routes_.layers, routes_.experts, setup_.slots, setup_.expert_bytes, setup_.chunk_bytes};
    o.link_bytes_per_s = setup_.times.link_bytes_per_s, o.link_latency = setup_.times.link_latency;
    o.prefetch = setup_.prefetch, o.keep = setup_.keep, o.how = setup_.how;
    return o;
  }
  /// The device is busy until then; the link goes on.
  void compute(Nanos took) {
    now_ += took;
    link_.advance(now_);
  }
  void foresee(int32_t layer) {
    if (predictor_ == nullptr || need_.need() != Need::kForecasts) return;
    predictor_->forecast(layer, forecast_);
    tier_.foresee(now_, layer, forecast_);
    link_.poke(now_);
  }

  void step(const ReplayStep& s) {
    const Nanos begin = now_;
    const TierCounters before = tier_.counters();
    stall_ = Nanos{0};
    if (s.scan) note_held();
    tier_.begin_step(now_, s.scan);
    const Need need = predictor_ != nullptr ? need_.begin_step(before.moved_bytes) : Need::kNothing;
    if (need != Need::kNothing) predictor_->begin_iteration(s.sequences);
    if (need != Need::kForecasts) tier_.unforeseen();
    foresee(-1);
    link_.poke(now_);
    for (int32_t l = 0; l < routes_.layers; ++l) layer(s, l);
    if (need != Need::kNothing) predictor_->end_iteration();
    compute(setup_.times.step);
    const TierCounters& after = tier_.counters();
    if (s.scan) {
      ++report_.prompt_steps, report_.prompt_tokens += s.tokens.size();
      report_.prompt_time += now_ - begin, report_.prompt_stall += stall_;
      report_.prompt_moved_bytes += after.moved_bytes - before.moved_bytes;
      report_.prompt_held += held_.size(), after_prompt_ = ReplayReport::kAfterPrompt;
      for (const Key key : held_) report_.prompt_kept += tier_.slot_of(key).has_value();
    } else {
      ++report_.steps, report_.tokens += s.tokens.size();
      report_.time += now_ - begin, report_.stall += stall_;
      report_.moved_bytes += after.moved_bytes - before.moved_bytes,
          report_.wasted_bytes += after.wasted_bytes - before.wasted_bytes;
    }
  }

  void note_held() {
    held_.clear();
    for (Key key = 0; key < static_cast<Key>(routes_.layers * routes_.experts); ++key)
      if (tier_.slot_of(key)) held_.push_back(key);
  }

  void layer(const ReplayStep& s, int32_t l) {
    const auto more = static_cast<int64_t>(s.tokens.size()) - 1;
    compute(setup_.times.attention + setup_.times.attention_token * more);
    uses_of(routes_, s, l, uses_);
    wanted_.clear();
    for (const StepUse& use : uses_)
      wanted_.push_back({static_cast<Key>(l * routes_.experts + use.expert), weight(s, use)});
    found_.resize(wanted_.size());
    tier_.routed(now_, l, wanted_, found_);
    count(s, l);
    link_.poke(now_);
    if (std::ranges::any_of(found_, [](Found f) { return f != Found::kHit; })) need_.missed();
    if (predictor_ != nullptr && need_.need() != Need::kNothing) {
      choices_.of(routes_, s, l);
      predictor_->routed(l, choices_.routes());
    }
    foresee(l);
    experts();
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

  /// Present ones in their order, then whichever arrives.
  void experts() {
    left_.resize(uses_.size());
    for (size_t i = 0; i < left_.size(); ++i) left_[i] = i;
    while (!left_.empty()) {
      const auto ready =
          std::ranges::find_if(left_, [this](size_t i) { return tier_.slot_of(wanted_[i].key).has_value(); });
      if (ready == left_.end()) {
        const auto arrived = link_.finish();
        MOESTRO_CHECK(arrived.has_value(), "a layer waits for an idle link");
        if (*arrived > now_) stall_ += *arrived - now_, now_ = *arrived;
        continue;
      }
      const size_t i = *ready;
      left_.erase(ready);
      compute(setup_.times.expert + setup_.times.expert_token * (uses_[i].tokens - 1));
      tier_.released(now_, wanted_[i].key);
      link_.poke(now_);
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
  ReplayReport report_;
  Nanos now_{0}, stall_{0};
  Choices choices_;
  std::vector<StepUse> uses_;
  std::vector<DeviceTier::Wanted> wanted_;
  std::vector<Found> found_;
  std::vector<size_t> left_;
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
  Machine machine(routes, setup, std::move(policy), foresight);
  return machine.run(plan_steps(routes, requests, setup.batch, setup.chunk));
}

}  // namespace moestro::tier
