// What is compared with: fewest misses on demand, and prediction without error.

#include "common/tier/replay.h"

namespace moestro::tier {
namespace {

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

}  // namespace

std::unique_ptr<prediction::Predictor> make_perfect_predictor(const Routes& routes, std::span<const size_t> requests,
                                                              const ReplaySetup& setup) {
  return std::make_unique<PerfectPredictor>(routes, plan_steps(routes, requests, setup.batch, setup.chunk));
}

Visits visits_of(const Routes& routes, std::span<const ReplayStep> steps) {
  Visits visits(static_cast<size_t>(routes.layers) * static_cast<size_t>(routes.experts));
  std::vector<StepUse> uses;
  for (const ReplayStep& step : steps)
    for (int32_t layer = 0; layer < routes.layers; ++layer) {
      uses_of(routes, step, layer, uses);
      std::vector<Key> keys;
      for (const StepUse& use : uses) keys.push_back(static_cast<Key>(layer * routes.experts + use.expert));
      visits.add(std::move(keys));
    }
  return visits;
}

ReplayReport replay_belady(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup) {
  const Visits visits = visits_of(routes, plan_steps(routes, requests, setup.batch, setup.chunk));
  ReplaySetup on_demand = setup;
  on_demand.prefetch = false, on_demand.keep = true;
  return replay(routes, requests, on_demand, std::make_unique<VisitOracle>(visits), {});
}

}  // namespace moestro::tier
