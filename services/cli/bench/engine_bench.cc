#include "services/cli/bench/engine_bench.h"

#include <algorithm>
#include <memory>

#include "common/config/units.h"
#include "services/cli/bench/engine_limits.h"
#include "services/cli/bench/engine_setup.h"
#include "services/cli/bench/workload.h"

namespace moestro::cli {
namespace {

constexpr int64_t kStepsBetweenLimits = 16;
constexpr int64_t kStreamDefault = int64_t{4} << 30, kStreamMin = int64_t{64} << 20;

/// The limits beside one run: measured in turns with it, so that both meet the same of a machine with other work. None:
/// nothing is.
class LimitsBeside {
 public:
  explicit LimitsBeside(EngineLimits* limits) : limits_(limits) {}
  void bandwidth() {
    if (limits_ != nullptr) limits_->bandwidth(sums_);
  }
  void arithmetic(const EngineCase& c) {
    if (limits_ != nullptr) limits_->arithmetic(c, sums_);
  }
  Status report(EngineRun& run) const {
    for (const auto& [name, sum] : sums_) run.limits[name] = sum.rate();
    return limits_ == nullptr ? Status::ok() : limits_->status();
  }

 private:
  EngineLimits* limits_;
  EngineLimits::Sums sums_;
};

class Bench {
 public:
  Bench(BenchedEngine& benched, EngineLimits* limits, const Clock& clock)
      : benched_(benched), limits_(limits), clock_(clock) {}

  /// Touches what the measurement will: buffers, caches, clock rates. Not counted.
  Status warm_up(const EngineCase& c) {
    EngineCase shorter = c;
    if (!c.prefill) shorter.tokens = std::min(c.tokens, kStepsBetweenLimits / 2);
    LimitsBeside none(nullptr);
    return measure(shorter, none).status();
  }
  Status run_into(EngineBenchResult& result) {
    const EngineCase& c = result.what;
    LimitsBeside beside(limits_);
    beside.arithmetic(c);
    MOESTRO_ASSIGN_OR_RETURN(const StepCost cost, measure(c, beside));
    EngineRun& run = result.runs.emplace_back();
    const store::BlobSource::Counters after = benched_.source->counters();
    run.expert_hits = static_cast<double>(after.hits - counted_from_.hits);
    run.expert_misses = static_cast<double>(after.misses - counted_from_.misses);
    const tier::TierCounters tier_after = tier_counters();
    run.tier = tier_after - tier_from_;
    run.moved_bytes = static_cast<double>(tier_after.moved_bytes - tier_from_.moved_bytes);
    run.seconds = cost.seconds;
    run.stalled_seconds = cost.stalled_seconds;
    run.host_experts = cost.host_experts;
    run.tokens = cost.tokens;
    run.weight_bytes = cost.weight_bytes;
    run.operations = cost.operations;
    return beside.report(run);
  }

 private:
  Result<StepCost> measure(const EngineCase& c, LimitsBeside& beside) {
    const int64_t source = benched_.engine->limits().encoder_decoder ? (c.prefill ? c.tokens : c.depth) : 0;
    const int64_t target = c.prefill ? 0 : c.tokens;
    Workload workload(*benched_.engine, clock_, c.batch,
                      source > 0 ? target : c.prefill ? c.tokens : c.depth + c.tokens, source);
    count_from_here();
    if (c.prefill) {
      beside.bandwidth();
      return workload.prompts(c.tokens);
    }
    MOESTRO_RETURN_IF_ERROR(workload.prompts(c.depth).status());
    count_from_here();
    StepCost total;
    for (int64_t i = 0; i < c.tokens; ++i) {
      if (i % kStepsBetweenLimits == 0) beside.bandwidth();
      MOESTRO_ASSIGN_OR_RETURN(const StepCost step, workload.decode());
      total += step;
    }
    return total;
  }

  tier::TierCounters tier_counters() const {
    return benched_.device->experts() == nullptr ? tier::TierCounters() : benched_.device->experts()->tier_counters();
  }
  void count_from_here() {
    counted_from_ = benched_.source->counters();
    tier_from_ = tier_counters();
  }

  BenchedEngine& benched_;
  EngineLimits* limits_;
  const Clock& clock_;
  store::BlobSource::Counters counted_from_;  ///< when the tokens of the run at hand began to count
  tier::TierCounters tier_from_;              ///< the same
};

Result<int64_t> stream_bytes(const EngineBenchOptions& o) {
  const auto available = static_cast<int64_t>(memory_available());
  if (o.stream_bytes == 0) return available == 0 ? kStreamMin : std::clamp(available / 4, kStreamMin, kStreamDefault);
  if (available > 0 && o.stream_bytes > available)
    return exhausted("--stream " + config::format_size(static_cast<uint64_t>(o.stream_bytes)) + ": " +
                     config::readable_size(static_cast<uint64_t>(available)) + " of memory are free");
  return o.stream_bytes;
}

/// One unit of progress for opening the pack, one for the memory to stream from, one for each run and warm-up.
class Steps {
 public:
  Steps(const BenchProgress& progress, uint64_t total) : progress_(progress), total_(total) {}
  void begin(const std::string& what) const { progress_(done_, total_, what); }
  void end() { ++done_; }

 private:
  const BenchProgress& progress_;
  uint64_t done_ = 0, total_;
};

/// What computes is what is measured: the device, which took its memory when it was opened, or the host.
Result<std::unique_ptr<EngineLimits>> open_limits(const EngineBenchOptions& o, BenchedEngine& benched,
                                                  const Steps& steps) {
  if (benched.device_limits) return limits_of_device(*benched.device_limits, o.deterministic);
  MOESTRO_ASSIGN_OR_RETURN(const int64_t bytes, stream_bytes(o));
  const std::string what = "filling " + config::readable_size(static_cast<uint64_t>(bytes)) + " to stream from";
  steps.begin(what);
  MOESTRO_ASSIGN_OR_RETURN(auto memory,
                           kernels::limits::Limits::create(*benched.ops, bytes, [&](int64_t) { steps.begin(what); }));
  const ExpertFormats experts =  // the first layer's, where layers differ
      benched.experts == DType::kMixed ? benched.source->manifest().expert_formats.front() : benched.experts;
  return limits_of_host(std::move(memory), benched.engine->spec(), experts, o.step_tokens);
}

}  // namespace

std::string case_name(const EngineCase& c) {
  std::string name = (c.prefill ? "prefill " : "decode ") + std::to_string(c.tokens);
  return c.batch > 1 ? name + " x " + std::to_string(c.batch) : name;
}

Result<EngineBenchReport> bench_engine(const EngineBenchOptions& o, const BenchProgress& progress,
                                       const BenchTurns* turns) {
  const SteadyClock clock;
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<EngineCase> cases, bench_cases(o));
  Steps steps(progress, 2 + cases.size() * static_cast<uint64_t>(turns == nullptr ? o.repeats + 1 : 1));
  steps.begin(o.store.empty() ? "reading " + o.pack : "attaching to " + o.store);
  MOESTRO_ASSIGN_OR_RETURN(BenchedEngine benched, open_engine(o, cases, clock));
  steps.end();

  EngineBenchReport report;
  std::unique_ptr<EngineLimits> limits;
  if (o.limits) {
    MOESTRO_ASSIGN_OR_RETURN(limits, open_limits(o, benched, steps));
    report.stream_bytes = limits->bytes();
  }
  steps.end();
  report.model = benched.source->manifest().model_name;
  report.experts = dtype_name(benched.experts);
  report.isa = benched.ops->options().isa;
  report.threads = benched.ops->options().threads;
  report.step_tokens = benched.engine->limits().step_tokens_max;
  report.kv_tokens = benched.engine->limits().kv_blocks * kernels::kKvBlockTokens;
  for (const EngineCase& c : cases) report.results.push_back({c, {}});

  Bench bench(benched, limits.get(), clock);
  for (const EngineBenchResult& result : report.results) {
    steps.begin(case_name(result.what) + ", warming up");
    MOESTRO_RETURN_IF_ERROR(bench.warm_up(result.what));
    steps.end();
  }
  if (turns != nullptr) {
    while (const std::optional<size_t> index = turns->next(cases.size())) {
      MOESTRO_RETURN_IF_ERROR(bench.run_into(report.results[*index]));
      turns->done(report.results[*index].runs.back());
    }
  }
  for (int64_t r = 1; turns == nullptr && r <= o.repeats; ++r)
    for (EngineBenchResult& result : report.results) {
      steps.begin(case_name(result.what) + ", repeat " + std::to_string(r));
      MOESTRO_RETURN_IF_ERROR(bench.run_into(result));
      steps.end();
    }
  if (limits) report.limits = limits->kinds();
  return report;
}

}  // namespace moestro::cli
