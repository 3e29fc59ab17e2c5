// What is compared with: fewest misses on demand, prediction without error, and the schedule of one who knows the
// future.

#include <algorithm>

#include "common/tier/clairvoyant.h"
#include "common/tier/visit_oracle.h"

namespace moestro::tier {
namespace {

size_t keys_of(const Routes& routes) {
  return static_cast<size_t>(routes.layers) * static_cast<size_t>(routes.experts);
}

class PerfectPredictor final : public prediction::Predictor {
 public:
  PerfectPredictor(const Routes& routes, std::vector<ReplayStep> steps) : routes_(routes), steps_(std::move(steps)) {}
  std::string_view name() const override { return "perfect"; }
  void begin_iteration(std::span<const prediction::IterationSequence>) override { ++begun_; }
  void routed(int32_t, std::span<const prediction::SequenceRoutes>) override {}
  void forecast(int32_t layer, prediction::Forecast& out) override {
    out.clear();
    for (int32_t target = 0; target < routes_.layers; ++target) {
      const size_t step = begun_ - 1 + (target > layer ? 0 : 1);
      if (step >= steps_.size()) continue;
      uses_of(routes_, steps_[step], target, uses_);
      for (const StepUse& use : uses_) out.row(target)[use.expert] = 1;
    }
  }
  void end_iteration() override {}
  void end_sequence(uint64_t) override {}

 private:
  const Routes& routes_;
  const std::vector<ReplayStep> steps_;
  std::vector<StepUse> uses_;
  size_t begun_ = 0;
};

/// What a plan of fetches comes to, counted as a replay is.
ReplayReport report_of(const FetchPlan& plan, std::span<const Visit> visits, std::span<const ReplayStep> steps,
                       const ReplaySetup& setup) {
  ReplayReport report;
  for (size_t v = 0; v < visits.size(); ++v) {
    const Visit& visit = visits[v];
    const uint64_t bytes = plan.visit_fetches[v] * setup.expert_bytes;
    report.counters.moved_bytes += bytes;
    if (!visit.decode) {
      report.prompt_time += plan.visit_time[v], report.prompt_stall += plan.visit_stall[v],
          report.prompt_moved_bytes += bytes;
      continue;
    }
    report.time += plan.visit_time[v], report.stall += plan.visit_stall[v], report.moved_bytes += bytes;
    report.uses += visit.keys.size(), report.hits += plan.visit_hits[v];
  }
  for (const ReplayStep& step : steps) {
    (step.scan ? report.prompt_steps : report.steps) += 1;
    (step.scan ? report.prompt_tokens : report.tokens) += step.tokens.size();
  }
  return report;
}

}  // namespace

std::unique_ptr<prediction::Predictor> make_perfect_predictor(const Routes& routes, std::span<const size_t> requests,
                                                              const ReplaySetup& setup) {
  return std::make_unique<PerfectPredictor>(routes, plan_steps(routes, requests, setup.batch, setup.chunk));
}

ReplayReport replay_belady(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup) {
  const auto steps = plan_steps(routes, requests, setup.batch, setup.chunk);
  ReplaySetup on_demand = setup;
  on_demand.prefetch = false, on_demand.keep = true;
  return replay(routes, requests, on_demand,
                std::make_unique<VisitOracle>(plan_visits(routes, steps, setup.times), keys_of(routes)), {});
}

Clairvoyant clairvoyant(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup) {
  const auto steps = plan_steps(routes, requests, setup.batch, setup.chunk);
  const auto visits = plan_visits(routes, steps, setup.times);
  const double seconds =
      setup.times.link_bytes_per_s > 0 ? static_cast<double>(setup.expert_bytes) / setup.times.link_bytes_per_s : 0;
  const Nanos copy = setup.times.link_latency + Nanos(static_cast<int64_t>(seconds * 1e9));
  Clairvoyant best;
  std::optional<FetchPlan> fastest;
  for (const int32_t horizon : clairvoyant_horizons()) {
    FetchPlan tried = aggressive(visits, keys_of(routes), setup.slots, copy, horizon, setup.keep);
    if (fastest && fastest->time <= tried.time) continue;
    fastest = std::move(tried), best.horizon = horizon;
  }
  best.report = report_of(*fastest, visits, steps, setup);
  best.total_time = fastest->time;
  best.least_time = least_time(visits, keys_of(routes), setup.slots, copy, setup.keep);
  return best;
}

}  // namespace moestro::tier
