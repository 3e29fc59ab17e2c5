#include "common/planner/choose_schedule.h"

#include <algorithm>
#include <utility>

#include "common/planner/virtual_step.h"

namespace moestro::planner {
namespace {

using Device = Memories::Device;

constexpr int64_t kMicroBatches[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 32, 48, 64};
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
constexpr double kDenseShares[] = {1, 0.5, 0}, kKvShares[] = {1, 0.75, 0.5, 0.25, 0};
constexpr int64_t kWorkerRowsLeast = 16;  ///< of a micro-batch: engine::MicroBatchOptions::least of workers
constexpr size_t kFinalists = 4;         ///< of a schedule, that run on virtual lanes
constexpr double kWorthIt = 0.9;         ///< of layerwise's time: forecasts are up to a tenth off
constexpr int64_t kBubbleFreeMost = 512; ///< micro-batches that are tried for it

/// `measured`: of what is used, what is found where it is computed. With an encoder, each phase has all of a memory's
/// room for the experts of its stack.
Residency residency(const PlanInput& in, const Placement& placement, const Step& step,
                    std::optional<double> measured) {
  const auto share = [&](int64_t room) {
    const int64_t all = std::min(placement.experts, in.sizes.experts_on_the_way(step.prompt));
    return all > 0 ? staying_experts(room, all, used_share(in.sizes, step.rows)) / static_cast<double>(all) : 0;
  };
  Residency at;
  at.device_memory = in.memories.device != Device::kHost;
  at.device_share = at.device_memory ? share(placement.device_experts) : 1;
  at.host_share = share(placement.host_experts);
  double& where_computed = at.device_memory ? at.device_share : at.host_share;
  if (where_computed < 1) where_computed = measured.value_or(where_computed);  // nothing misses if all is there
  at.streamed_bytes = static_cast<double>(placement.streamed_bytes);
  at.streamed_layers = placement.streamed_layers, at.streamed_by_link = placement.streamed_by_link;
  at.prefetch = in.prefetch;
  at.foreseen = in.foreseen;
  return at;
}

Phase phase_of(const PhaseSteps& steps, const StepForecast& forecast) {
  return {steps.all, forecast, steps.tokens, steps.steps * forecast.seconds};
}

/// On a worker's device, memory decides how many layers' dense weights stay.
Arrangement placed_as(Arrangement a, const Placement& placement) {
  if (placement.streamed_by_link) a.dense_share = placement.dense_share;
  return a;
}

/// Both phases by closed forms.
ScheduleOption estimate(const PlanInput& in, const Arrangement& given, const Placement& placement) {
  const Arrangement a = placed_as(given, placement);
  const PhaseSteps prompt = prompt_steps(in.workload, a), decode = decode_steps(in.workload, a);
  ScheduleOption option;
  option.arrangement = a, option.placement = placement;
  if (a.schedule == ScheduleName::kLayerwise) {
    const auto forecast = [&](const PhaseSteps& steps, std::optional<double> hits) {
      return forecast_step(in.sizes, in.rates, residency(in, placement, steps.all, hits), steps.all);
    };
    option.prompt = phase_of(prompt, forecast(prompt, std::nullopt));
    option.decode = phase_of(decode, forecast(decode, in.device_hits));
  } else {
    option.prompt = phase_of(prompt, forecast_group(in, a, placement, prompt));
    option.decode = phase_of(decode, forecast_group(in, a, placement, decode));
  }
  // GPUs' workers have whole layers take turns, not a share of each.
  const bool cuts_layers = in.memories.device == Device::kWhole && a.dense_share < 1;
  option.runs = workers_run(a.schedule, in.memories.device) && !cuts_layers;
  return option;
}

/// Workers on a CPU and on emulated devices keep experts as their caches decide.
bool device_decides(const PlanInput& in) { return in.memories.device != Device::kWhole; }

/// In the memory that they are computed from.
int64_t room_for_experts(const PlanInput& in, const Placement& placement) {
  return in.memories.device == Device::kHost ? placement.host_experts : placement.device_experts;
}

Status check_rates(const PlanInput& in, const Placement& placement) {
  if (!placement.needs_drive() || in.rates.drive_bytes_per_s) return Status::ok();
  return invalid_argument("the drive's rate is missing: host memory holds " +
                          std::to_string(placement.host_experts) + " of " + std::to_string(placement.experts) +
                          " experts");
}

/// Of a schedule: the estimates of all that fit, of the same number of micro-batches only the best.
class Candidates {
 public:
  explicit Candidates(const PlanInput& in) : in_(in) {}

  void add(const Arrangement& a, const Placement& placement) {
    ++count_;
    const ScheduleOption option = estimate(in_, a, placement);
    const auto alike = std::ranges::find_if(best_, [&](const ScheduleOption& o) {
      return o.arrangement.micro_batches == a.micro_batches;
    });
    if (alike == best_.end()) best_.push_back(option);
    else if (option.seconds() < alike->seconds()) *alike = option;
  }
  /// The best first.
  std::vector<ScheduleOption> take() {
    std::ranges::stable_sort(best_, {}, &ScheduleOption::seconds);
    return std::move(best_);
  }
  int64_t count() const { return count_; }

 private:
  const PlanInput& in_;
  std::vector<ScheduleOption> best_;
  int64_t count_ = 0;
};

/// Calls `use` with sequences of a micro-batch: no more than there are, and those that cover all of them.
template <class Use>
void each_rows(const PlanInput& in, int64_t micro_batches, const Use& use) {
  const int64_t all = ceil_div(in.workload.sequences, micro_batches);
  for (const int64_t rows : kRows)
    if (rows < all) use(rows);
  if (all <= in.workload.step_tokens) use(all);
}

/// The largest n of 1 to `most` for which `fits(n)`, or 0. What fits with more also fits with fewer.
template <class Fits>
int64_t largest(int64_t most, const Fits& fits) {
  int64_t good = 0, bad = most + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

/// Why a schedule is out of the question, or empty.
std::string obstacle(const PlanInput& in, ScheduleName schedule) {
  if (schedule == ScheduleName::kLayerwise) return "";
  if (in.sizes.has_encoder()) return "encoder-decoder models run layerwise";
  const Device device = in.memories.device;
  if (schedule == ScheduleName::kExpertPipeline) {
    const bool stays = device == Device::kHost && !in.rates.drive_bytes_per_s;
    return stays ? "every expert is in host memory: none is brought" : "";
  }
  if (device == Device::kHost) return "it needs a device in addition to the processor that attends";
  if (device == Device::kExpertsOnly) {
    if (!in.memories.device_has_kv()) return "the KV cache takes none of the device's memory (kv=counted)";
    if (!in.kv_moves) return "the home of the KV cache is the device";
    if (in.host_shares_cores && !in.schedule)
      return "the host would attend on the cores that compute for the device (--threads: at most half of them)";
    return in.no_host_attention;
  }
  if (!in.rates.host_bytes_per_s || !in.rates.host_operations_per_s)
    return "the host's rates are not known (host.memory_gbps and host.tflops of --hardware)";
  return "";
}

/// The search for one schedule.
class Search {
 public:
  Search(const PlanInput& in, ScheduleName schedule) : in_(in), schedule_(schedule), candidates_(in) {}

  /// kExhausted, kInvalidArgument: why there is none.
  Result<ScheduleOption> best() {
    if (schedule_ == ScheduleName::kLayerwise) add_layerwise();
    if (schedule_ == ScheduleName::kExpertPipeline) add_pipeline();
    if (schedule_ == ScheduleName::kCgo) add_cgo();
    std::vector<ScheduleOption> found = candidates_.take();
    if (found.empty()) return refused_.is_ok() ? exhausted("no arrangement of it fits") : refused_;
    if (schedule_ == ScheduleName::kLayerwise) return std::move(found.front());
    return on_lanes(std::move(found));
  }
  int64_t count() const { return candidates_.count(); }

 private:
  std::optional<Placement> placed(const Arrangement& a) {
    auto placement = place(in_, a);
    Status status = placement.status();
    if (status.is_ok()) status = check_rates(in_, *placement);
    if (status.is_ok()) return std::move(*placement);
    // One sequence at a time takes the least: what is said of it is what to do.
    if (refused_.is_ok() || a.sequences() == 1) refused_ = std::move(status);
    return std::nullopt;
  }

  void add_layerwise() {
    const auto add = [&](int64_t rows) {
      if (rows > kLayerwiseSequencesMax) return false;
      const Arrangement a{.rows = rows};
      const auto placement = placed(a);
      if (placement) candidates_.add(a, *placement);
      return placement.has_value();
    };
    each_rows(in_, 1, add);
    // And as many as fit, to the sequence.
    largest(std::min({in_.workload.sequences, in_.workload.step_tokens, kLayerwiseSequencesMax}), add);
  }

  void add_pipeline() {
    const bool gpu = in_.memories.device == Device::kWhole, moves_kv = in_.kv_moves && in_.memories.device_has_kv();
    for (const int64_t m : kMicroBatches) {
      if (m > in_.workload.sequences) break;
      each_rows(in_, m, [&](int64_t rows) {
        if (device_decides(in_) && m > 1 && rows < kWorkerRowsLeast) return;
        const bool as_layerwise = device_decides(in_) && m == 1;  // where nothing moves
        for (const double dense : kDenseShares)
          for (const double kv : kKvShares)
            if (((gpu && !in_.as_workers) || dense == 1) && (as_layerwise ? kv < 1 && moves_kv : moves_kv || kv == 1))
              add_pipeline({schedule_, m, rows, dense, kv, 0, true});
      });
    }
  }

  void add_pipeline(Arrangement a) {
    const auto placement = placed(a);
    if (!placement) return;
    if (placement->streamed_bytes > 0 && !placement->streamed_by_link) {
      refused_ = exhausted("dense weights take turns in host memory, of which only layerwise has forecasts");
      return;
    }
    const bool link = in_.memories.device != Device::kHost;
    const int64_t room = room_for_experts(in_, *placement), layer = in_.sizes.experts;
    if (!link && room >= placement->experts) return;  // as layerwise, only that weights are read more often
    if (device_decides(in_)) return candidates_.add(a, *placement);
    int64_t before = 0;
    for (const int64_t slots : {2 * in_.sizes.top_k, ceil_div(layer, 2), layer, 2 * layer}) {
      a.slots = std::clamp<int64_t>(slots, 1, room);
      if (a.slots == std::exchange(before, a.slots)) continue;
      for (const bool ahead : {true, false}) {
        a.ahead = ahead && in_.prefetch;
        if (ahead == a.ahead) candidates_.add(a, *placement);
      }
    }
  }

  void add_cgo() {
    for (const int64_t m : kMicroBatches) {
      if (m > in_.workload.sequences) break;
      each_rows(in_, m, [&](int64_t rows) {
        if (device_decides(in_) && m > 1 && rows < kWorkerRowsLeast) return;
        Arrangement a{schedule_, m, rows, 1, 0, 0, true};
        if (!device_decides(in_)) a.dense_share = largest_weight_share(in_, a);
        const auto placement = placed(a);
        if (placement && placement->streamed_by_link) {
          refused_ = exhausted("dense weights take turns in the device's memory, which it does not know of");
          return;
        }
        if (placement && placement->host_experts == placement->experts) candidates_.add(a, *placement);
        else if (placement) refused_ = exhausted("all weights have to be in host memory");
      });
    }
  }

  /// The best few run, then what the closed form sees least of: slots.
  Result<ScheduleOption> on_lanes(std::vector<ScheduleOption> found) {
    if (found.size() > kFinalists) found.resize(kFinalists);
    std::optional<ScheduleOption> best;
    const auto consider = [&](const Arrangement& a) -> Status {
      MOESTRO_ASSIGN_OR_RETURN(ScheduleOption option, forecast_arrangement(in_, a));
      if (!best || option.seconds() < best->seconds()) best = std::move(option);
      return Status::ok();
    };
    for (const ScheduleOption& option : found) MOESTRO_RETURN_IF_ERROR(consider(option.arrangement));
    if (schedule_ == ScheduleName::kExpertPipeline && !device_decides(in_))
      for (const double factor : {0.5, 1.5, 2.0}) {
        Arrangement a = best->arrangement;
        const int64_t room = room_for_experts(in_, best->placement);
        a.slots = std::clamp<int64_t>(static_cast<int64_t>(factor * static_cast<double>(a.slots)), 1, room);
        MOESTRO_RETURN_IF_ERROR(consider(a));
      }
    return std::move(*best);
  }

  const PlanInput& in_;
  const ScheduleName schedule_;
  Candidates candidates_;
  Status refused_ = Status::ok();
};

}  // namespace

Result<ScheduleOption> forecast_arrangement(const PlanInput& in, const Arrangement& given) {
  MOESTRO_ASSIGN_OR_RETURN(const Placement placement, place(in, given));
  const Arrangement a = placed_as(given, placement);
  MOESTRO_RETURN_IF_ERROR(check_rates(in, placement));
  ScheduleOption option = estimate(in, a, placement);
  if (a.schedule == ScheduleName::kLayerwise) return option;
  const auto run = [&](Phase& phase, const PhaseSteps& steps) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(const StepForecast forecast, virtual_step(in, a, placement, steps));
    phase = phase_of(steps, forecast);
    return Status::ok();
  };
  MOESTRO_RETURN_IF_ERROR(run(option.prompt, prompt_steps(in.workload, a)));
  MOESTRO_RETURN_IF_ERROR(run(option.decode, decode_steps(in.workload, a)));
  if (a.schedule != ScheduleName::kExpertPipeline) return option;
  option.bubbles = bubbles(in, a, placement);
  option.bubble_free = bubble_free_micro_batches(in, a, placement, kBubbleFreeMost);
  return option;
}

bool may_need_drive(const PlanInput& in) {
  const bool layerwise = in.schedule == ScheduleName::kLayerwise;
  const int64_t most = layerwise ? std::min(in.workload.sequences, kLayerwiseSequencesMax) : in.workload.sequences;
  // The most sequences leave the least for experts: on the device, or in host memory if all that moves is there.
  for (const double share : {1.0, 0.0}) {
    if (layerwise && share < 1) break;
    const auto placed = [&](int64_t rows) {
      return place(in, Arrangement{.rows = rows, .dense_share = share, .kv_share = in.kv_moves ? share : 1});
    };
    const int64_t rows = largest(most, [&](int64_t n) { return placed(n).is_ok(); });
    if (rows > 0 && placed(rows)->needs_drive()) return true;
  }
  return false;
}

Result<ScheduleSearch> search_schedules(const PlanInput& in) {
  ScheduleSearch search;
  for (const ScheduleName schedule : kSchedules) {
    if (in.schedule.value_or(schedule) != schedule) continue;
    const auto leave_out = [&](std::string why) { search.left_out.push_back({schedule, std::move(why)}); };
    if (const std::string why = obstacle(in, schedule); !why.empty()) {
      if (in.schedule) return invalid_argument("--schedule " + std::string(schedule_name(schedule)) + ": " + why);
      leave_out(why);
      continue;
    }
    Search one(in, schedule);
    auto best = one.best();
    search.candidates += one.count();
    if (best.is_ok()) search.options.push_back(std::move(*best));
    else if (in.schedule || schedule == ScheduleName::kLayerwise) return best.status();
    else leave_out(best.status().message());
  }
  std::ranges::stable_sort(search.options, {}, &ScheduleOption::seconds);
  return search;
}

const ScheduleOption* chosen(const ScheduleSearch& search) {
  const auto runs = std::ranges::find_if(search.options, &ScheduleOption::runs);
  if (runs == search.options.end()) return nullptr;
  const auto layerwise = std::ranges::find_if(
      search.options, [](const ScheduleOption& o) { return o.arrangement.schedule == ScheduleName::kLayerwise; });
  const bool worth_it = layerwise == search.options.end() || runs->seconds() <= kWorthIt * layerwise->seconds();
  return worth_it ? &*runs : &*layerwise;
}

Result<ScheduleOption> choose_schedule(const PlanInput& in) {
  MOESTRO_ASSIGN_OR_RETURN(ScheduleSearch search, search_schedules(in));
  if (const ScheduleOption* const choice = chosen(search)) return *choice;
  return unsupported("workers do not run the schedule " + std::string(schedule_name(*in.schedule)) +
                     " on this device yet");
}

}  // namespace moestro::planner
