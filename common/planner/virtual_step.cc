#include "common/planner/virtual_step.h"

#include <algorithm>
#include <cmath>

namespace moestro::planner {
namespace {

// With so many layers and twice as many, what the first and the last take by themselves is known.
constexpr size_t kFewLayers = 4;

struct LaneSeconds {
  double elapsed = 0;
  std::array<double, lanes::kLaneCount> busy{};
};

/// On a worker's device, where only experts are brought: a layer's are spread over its pages, as the tier's chunks are
/// that come ahead.
std::unique_ptr<lanes::Schedule> make_cgo(const ModelSizes& sizes, const Arrangement& a, const GroupTimes& times) {
  lanes::ModelShape shape = model_shape(sizes, times.hidden_bytes());
  if (!times.device_decides()) return lanes::make_cgo_schedule(std::move(shape), {.weight_share = a.dense_share});
  double all = 0, missing = 0;
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    lanes::LayerShape& layer = shape.layers[l];
    layer.attention_weight_bytes = layer.router_weight_bytes = 0;  // their time is not that of their bytes
    layer.dense_weight_bytes = layer.shared_weight_bytes = 0;
    all += layer.experts * layer.expert_bytes, missing += times.missing_bytes(sizes.layers[l]);
  }
  return lanes::make_cgo_schedule(std::move(shape), {.weight_share = all > 0 ? 1 - missing / all : 1});
}

std::unique_ptr<lanes::Schedule> make_schedule(const ModelSizes& sizes, const Arrangement& a, const GroupTimes& times,
                                               bool prompt, EvenRoutes& routes) {
  if (a.schedule == ScheduleName::kCgo && !prompt) return make_cgo(sizes, a, times);
  return lanes::make_expert_pipeline_schedule(
      model_shape(sizes),
      {.dense_share = a.dense_share,
       .kv_share = a.kv_share,
       .dense_ahead = times.device_decides(),
       .expert_slots = static_cast<int32_t>(times.slots())},
      routes);
}

Result<LaneSeconds> run(const PlanInput& in, const Arrangement& a, const Placement& placement,
                        const PhaseSteps& steps) {
  const GroupTimes times(in, a, placement, steps);
  EvenRoutes routes(in.sizes.experts, in.sizes.top_k, static_cast<int32_t>(times.ahead() + 0.5));
  routes.keep_resident(times.resident());
  // Rounded up: a micro-batch of fewer rows than are counted as tokens would be fast for nothing.
  const auto whole = [](double n) { return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(n - 1e-9))); };
  const int64_t rows = whole(steps.micro.rows);
  routes.set_rows(rows);
  const std::vector<lanes::MicroBatchShape> micro_batches(
      static_cast<size_t>(steps.micro_batches),
      {rows, std::llround(steps.micro.rows * steps.micro.context), std::llround(steps.cached)});
  const auto schedule = make_schedule(in.sizes, a, times, steps.all.prompt, routes);
  lanes::StepMachine machine(*schedule, lanes::kVirtualLanes);
  machine.begin({.tokens = steps.micro_batches * rows,
                 .context = steps.micro_batches * micro_batches.front().context,
                 .logit_rows = whole(steps.all.logit_rows),
                 .micro_batches = micro_batches});
  lanes::VirtualDriver driver(times.lanes(), &times);
  MOESTRO_ASSIGN_OR_RETURN(const lanes::ExecutionTotals totals, driver.run(machine, routes, nullptr));
  LaneSeconds seconds{.elapsed = seconds_of(totals.elapsed)};
  for (size_t lane = 0; lane < seconds.busy.size(); ++lane) seconds.busy[lane] = seconds_of(totals.busy[lane]);
  return seconds;
}

/// The layers before the last run of equal ones, and so many of that.
PlanInput shortened(const PlanInput& in, size_t equal, size_t keep) {
  PlanInput few = in;
  few.sizes.layers.resize(in.sizes.layers.size() - equal + keep);
  return few;
}

/// A step takes what the same layers take once more.
Result<LaneSeconds> run_again(const PlanInput& in, const Arrangement& a, const Placement& placement,
                              const PhaseSteps& steps) {
  PlanInput twice = in;
  twice.sizes.layers.insert(twice.sizes.layers.end(), in.sizes.layers.begin(), in.sizes.layers.end());
  MOESTRO_ASSIGN_OR_RETURN(const LaneSeconds once, run(in, a, placement, steps));
  MOESTRO_ASSIGN_OR_RETURN(LaneSeconds more, run(twice, a, placement, steps));
  const double head = head_time(in.sizes, in.rates, steps.all).seconds;  // both have one
  for (size_t lane = 0; lane < more.busy.size(); ++lane) more.busy[lane] -= once.busy[lane];
  more.busy[static_cast<size_t>(lanes::Lane::kCompute)] += head;
  more.elapsed = std::max(more.elapsed - once.elapsed + head, *std::ranges::max_element(more.busy));
  return more;
}

Result<LaneSeconds> run_layers(const PlanInput& in, const Arrangement& a, const Placement& placement,
                               const PhaseSteps& steps) {
  const std::vector<LayerSizes>& layers = in.sizes.layers;
  size_t equal = 1;
  while (equal < layers.size() && layers[layers.size() - 1 - equal] == layers.back()) ++equal;
  if (steps_follow_one_another(in)) return run_again(in, a, placement, steps);
  if (equal <= 2 * kFewLayers) return run(in, a, placement, steps);
  const PlanInput few = shortened(in, equal, kFewLayers), more = shortened(in, equal, 2 * kFewLayers);
  MOESTRO_ASSIGN_OR_RETURN(const LaneSeconds first, run(few, a, placement, steps));
  MOESTRO_ASSIGN_OR_RETURN(LaneSeconds all, run(more, a, placement, steps));
  const double others = static_cast<double>(equal - 2 * kFewLayers) / static_cast<double>(kFewLayers);
  const auto extend = [&](double& seconds, double shorter) { seconds += others * std::max(0.0, seconds - shorter); };
  extend(all.elapsed, first.elapsed);
  for (size_t lane = 0; lane < all.busy.size(); ++lane) extend(all.busy[lane], first.busy[lane]);
  return all;
}

}  // namespace

bool steps_follow_one_another(const PlanInput& in) {
  return in.memories.device != Memories::Device::kWhole && in.sizes.layers.size() <= 2 * kFewLayers;
}

Result<StepForecast> virtual_step(const PlanInput& in, const Arrangement& a, const Placement& placement,
                                  const PhaseSteps& steps) {
  MOESTRO_ASSIGN_OR_RETURN(const LaneSeconds ran, run_layers(in, a, placement, steps));
  StepForecast f = forecast_group(in, a, placement, steps);
  const auto busy = [&](lanes::Lane lane) { return ran.busy[static_cast<size_t>(lane)]; };
  f.seconds = f.least_seconds = f.most_seconds = ran.elapsed;
  f.compute_seconds = busy(lanes::Lane::kCompute);
  f.host_seconds = busy(lanes::Lane::kHostCompute);
  f.link_out_seconds = busy(lanes::Lane::kDeviceToHost);
  const bool link = in.memories.device != Memories::Device::kHost;
  (link ? f.link_seconds : f.drive_seconds) = busy(lanes::Lane::kHostToDevice);
  return f;
}

}  // namespace moestro::planner
