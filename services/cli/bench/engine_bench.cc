#include "services/cli/bench/engine_bench.h"

#include <algorithm>
#include <memory>
#include <set>

#include "services/cli/bench/read_bandwidth.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/philox.h"
#include "store/resident_source.h"

namespace moestro::cli {
namespace {

using engine::Engine;
using engine::StepOutcome;
using engine::StepPlan;

constexpr int64_t kStepTokens = 512;
constexpr int64_t kStepsPerPass = 2;

double seconds(Nanos t) { return static_cast<double>(t.count()) * 1e-9; }

/// Sequences with random prompts, decoded side by side.
class Decoding {
 public:
  Decoding(Engine& engine, const EngineBenchOptions& options) : engine_(engine), options_(options) {
    blocks_each_ = ceil_div(options.prompt + options.gen, kernels::kKvBlockTokens);
    last_.resize(static_cast<size_t>(options.batch));
  }

  /// Prompts in chunks of at most one step's tokens, one sequence after another.
  Status prefill() {
    for (int64_t b = 0; b < options_.batch; ++b)
      for (int64_t first = 0; first < options_.prompt; first += kStepTokens) {
        const int64_t n = std::min(kStepTokens, options_.prompt - first);
        StepPlan plan = new_plan();
        add(plan, b, first, n, first == 0);
        plan.sequences.back().sample = first + n == options_.prompt;
        MOESTRO_RETURN_IF_ERROR(run(plan));
      }
    return Status::ok();
  }

  /// One token for every sequence; the bytes of weights it read.
  Result<double> decode(int64_t position) {
    StepPlan plan = new_plan();
    for (int64_t b = 0; b < options_.batch; ++b) {
      add(plan, b, position, 1, false);
      plan.sequences.back().sample = true;
    }
    MOESTRO_RETURN_IF_ERROR(run(plan));
    std::set<std::pair<uint32_t, uint32_t>> experts;
    for (const auto& s : outcome_.sequences)
      for (const auto& c : s.activations) experts.emplace(c.layer.value, c.expert.value);
    const Engine::WeightTraffic traffic = engine_.weight_traffic();
    return traffic.dense_bytes + traffic.expert_bytes * static_cast<double>(experts.size());
  }

 private:
  StepPlan new_plan() {
    StepPlan plan;
    plan.id = PlanId(next_plan_++);
    plan.model = "bench";
    return plan;
  }

  void add(StepPlan& plan, int64_t sequence, int64_t first, int64_t tokens, bool fresh) {
    const auto index = static_cast<uint32_t>(plan.sequences.size());
    engine::PlanSequence& s = plan.sequences.emplace_back();
    s.id = SequenceId(static_cast<uint64_t>(sequence));
    if (fresh)
      for (int64_t i = 0; i < blocks_each_; ++i) s.blocks.push_back(static_cast<uint32_t>(sequence * blocks_each_ + i));
    for (int64_t i = 0; i < tokens; ++i) plan.tokens.push_back({index, static_cast<int32_t>(first + i), token(sequence, first + i)});
  }

  TokenId token(int64_t sequence, int64_t position) const {
    if (position >= options_.prompt) return last_[static_cast<size_t>(sequence)];
    const double u = engine::uniform_at(7, static_cast<uint32_t>(sequence), static_cast<uint32_t>(position));
    return static_cast<TokenId>(u * static_cast<double>(engine_.spec().vocab));
  }

  Status run(const StepPlan& plan) {
    MOESTRO_ASSIGN_OR_RETURN(outcome_, engine_.step(plan));
    for (const auto& s : outcome_.sequences) {
      MOESTRO_RETURN_IF_ERROR(s.status);
      if (!s.sampled.empty()) last_[static_cast<size_t>(s.id.value)] = s.sampled.back().id;
    }
    return Status::ok();
  }

  Engine& engine_;
  const EngineBenchOptions& options_;
  int64_t blocks_each_;
  uint64_t next_plan_ = 1;
  std::vector<TokenId> last_;
  StepOutcome outcome_;
};

Result<EngineRun> run_once(Engine& engine, const EngineBenchOptions& o, ReadBandwidth& bandwidth, const Clock& clock) {
  engine.forget_all();
  Decoding decoding(engine, o);
  EngineRun run;
  const Nanos begin = clock.now();
  MOESTRO_RETURN_IF_ERROR(decoding.prefill());
  run.prefill_tokens_per_s = static_cast<double>(o.batch * o.prompt) / seconds(clock.now() - begin);
  double weight_bytes = 0;
  Nanos decoding_time{0}, reading_time{0};
  int64_t passes = 0;
  for (int64_t i = 0; i < o.gen; ++i) {
    // Between the steps rather than before them: on a machine with other work both meet the same of it.
    if (i % kStepsPerPass == 0) {
      reading_time += bandwidth.pass(clock);
      ++passes;
    }
    const Nanos step_begin = clock.now();
    MOESTRO_ASSIGN_OR_RETURN(const double step_bytes, decoding.decode(o.prompt + i));
    decoding_time += clock.now() - step_begin;
    weight_bytes += step_bytes;
  }
  run.decode_tokens_per_s = static_cast<double>(o.gen * o.batch) / seconds(decoding_time);
  run.weight_bytes_per_step = weight_bytes / static_cast<double>(o.gen);
  run.read_bytes_per_s = bandwidth.pass_bytes() * static_cast<double>(passes) / seconds(reading_time);
  run.bandwidth_share = weight_bytes / seconds(decoding_time) / run.read_bytes_per_s;
  return run;
}

}  // namespace

Result<EngineBenchReport> bench_engine(const EngineBenchOptions& o) {
  const SteadyClock clock;
  MOESTRO_ASSIGN_OR_RETURN(auto source, store::ResidentSource::open(o.pack));
  const auto ops = kernels::make_cpu_ops({.threads = o.threads, .deterministic = o.deterministic, .isa = kernels::best_isa()});
  engine::EngineOptions options;
  options.model = "bench";
  options.kv_tokens = o.batch * ceil_div(o.prompt + o.gen, kernels::kKvBlockTokens) * kernels::kKvBlockTokens;
  options.context_max = o.prompt + o.gen;
  options.step_tokens_max = std::max(kStepTokens, o.batch);
  options.step_sequences_max = o.batch;
  if (!o.precision.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(options.expert_precision, parse_dtype(o.precision));
  }
  MOESTRO_ASSIGN_OR_RETURN(auto engine, Engine::create(options, *source, *ops, clock));
  EngineBenchReport report;
  report.threads = ops->options().threads;
  report.isa = kernels::isa_name(ops->options().isa);
  ReadBandwidth bandwidth(report.threads);
  MOESTRO_RETURN_IF_ERROR(run_once(*engine, o, bandwidth, clock).status());  // warms caches and buffers, is not counted
  for (int64_t i = 0; i < o.repeat; ++i) {
    MOESTRO_ASSIGN_OR_RETURN(const EngineRun run, run_once(*engine, o, bandwidth, clock));
    report.runs.push_back(run);
  }
  return report;
}

}  // namespace moestro::cli
