// A batch job on an emulated device: sequences of random tokens, prompts and answers of random lengths, as many at a
// time as the KV cache holds. Prints one JSON object: tokens a second, what crossed the link, and the least that had
// to.
// scripts/bench_throughput compares schedules with it.
//
//   moestro_group_bench PACK --schedule expert-pipeline --link 2GB/s [--at-once 256] [--without by-expert]
//   moestro_group_bench PACK --expert-time      how long an expert takes to compute 16 rows
//
// The device has memory for a part of the experts, and for the KV of some of the longest sequences. With the layerwise
// schedule so many run at a time. With the expert pipeline KV lies in host memory, and that room is for what is in use.
// So it is with cgo, whose host attends to what decodes.
// Prompts are computed beside decoding, as by the orchestrator: decodes first, then chunks of prompts.

#include <algorithm>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "common/config/units.h"
#include "services/command_line/command_line.h"
#include "services/worker/engine/kv_shares.h"
#include "services/worker/engine/layer_math.h"
#include "services/worker/worker_device.h"
#include "store/resident_source.h"

namespace moestro {
namespace {

using nlohmann::json;

struct Options {
  std::string pack, schedule = "expert-pipeline", link = "2GB/s", kv_dtype = "bf16", predict = "auto", cache = "auto",
                    timeline;
  std::vector<std::string> without;
  int64_t sequences = 256, at_once = 256, kv_sequences = 16, step_tokens = 512, micro_batches = 0, micro_batch_rows = 0;
  int64_t prompt_least = 64, prompt_most = 512, generate_least = 32, generate_most = 128;
  int64_t ring_tokens = 0;
  double experts = 0.25;
  int threads = 0;
  uint32_t seed = 1;
  bool expert_time = false;
  bool fits = false;  ///< the device has room for everything: what the computation takes

  int64_t longest() const { return prompt_most + generate_most; }
  bool groups() const { return schedule != "layerwise"; }
  engine::ScheduleKind kind() const {
    // The device that has room for everything is to compute everything, which no host does beside it.
    if (schedule == "cgo" && !fits) return engine::ScheduleKind::kCgo;
    return groups() ? engine::ScheduleKind::kExpertPipeline : engine::ScheduleKind::kLayerwise;
  }
  bool leaves_out(const std::string& part) const { return std::ranges::find(without, part) != without.end(); }
};

struct Line {
  uint64_t id = 0;
  int64_t prompt = 0, generate = 0;
  int64_t computed = 0;  ///< positions
  std::vector<uint32_t> blocks = {};
};

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

/// The lines of the job, and the plan of each step.
class Job {
 public:
  Job(const Options& o, engine::Engine& engine) : o_(o), engine_(engine), random_(o.seed) {
    const auto between = [this](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
    };
    for (int64_t i = 0; i < o.sequences; ++i)
      waiting_.push_back({.id = static_cast<uint64_t>(i) + 1,
                          .prompt = between(o.prompt_least, o.prompt_most),
                          .generate = between(o.generate_least, o.generate_most)});
    for (int64_t b = engine.limits().kv_blocks; b-- > 0;) free_.push_back(static_cast<uint32_t>(b));
    plan_.model = engine.limits().model;
  }

  bool done() const { return waiting_.empty() && running_.empty(); }
  /// The next plan: a token of each line that decodes, then of prompts what is left of the step.
  const engine::StepPlan& next() {
    admit();
    plan_.id = PlanId(plan_.id.value + 1);
    plan_.sequences.clear();
    plan_.tokens.clear();
    parts_.clear();
    int64_t left = o_.step_tokens;
    for (const bool prompts : {false, true})
      for (Line& line : running_) {
        if ((line.computed < line.prompt) != prompts || left == 0) continue;
        left -= add(line, prompts ? std::min(left, line.prompt - line.computed) : 1);
      }
    return plan_;
  }
  void step_done() {
    for (const auto& [index, tokens] : parts_) running_[index].computed += tokens;
    plan_.released.clear();
    std::erase_if(running_, [this](Line& line) {
      if (line.computed < line.prompt + line.generate - 1) return false;  // the last token is not computed with
      free_.insert(free_.end(), line.blocks.begin(), line.blocks.end());
      plan_.released.push_back({SequenceId(line.id), INT64_MAX});
      generated_ += line.generate, prompts_ += line.prompt;
      return true;
    });
  }
  int64_t generated() const { return generated_; }
  int64_t prompts() const { return prompts_; }
  size_t most_running() const { return most_; }

 private:
  void admit() {
    while (!waiting_.empty() && std::ssize(running_) < o_.at_once) {
      const auto needs = static_cast<size_t>(
          ceil_div(waiting_.front().prompt + waiting_.front().generate, kernels::kKvBlockTokens));
      if (free_.size() < needs) break;
      Line& line = running_.emplace_back(std::move(waiting_.front()));
      waiting_.pop_front();
      line.blocks.assign(free_.end() - static_cast<std::ptrdiff_t>(needs), free_.end());
      free_.resize(free_.size() - needs);
    }
    most_ = std::max(most_, running_.size());
  }
  int64_t add(Line& line, int64_t tokens) {
    const auto index = static_cast<uint32_t>(plan_.sequences.size());
    engine::PlanSequence& s = plan_.sequences.emplace_back();
    s.id = SequenceId(line.id);
    if (line.computed == 0) s.blocks = line.blocks;
    s.sample = line.computed + tokens >= line.prompt;
    for (int64_t i = 0; i < tokens; ++i)
      plan_.tokens.push_back({index, static_cast<int32_t>(line.computed + i),
                              static_cast<TokenId>(random_() % static_cast<uint64_t>(engine_.spec().vocab))});
    parts_.emplace_back(static_cast<size_t>(&line - running_.data()), tokens);
    return tokens;
  }

  const Options& o_;
  engine::Engine& engine_;
  std::minstd_rand random_;
  std::deque<Line> waiting_;
  std::vector<Line> running_;
  std::vector<uint32_t> free_;
  engine::StepPlan plan_;
  std::vector<std::pair<size_t, int64_t>> parts_;  ///< of running_, and its tokens in the step
  int64_t generated_ = 0, prompts_ = 0;
  size_t most_ = 0;
};

int64_t kv_of(const Options& o, int64_t sequences) {
  return sequences * ceil_div(o.longest(), kernels::kKvBlockTokens) * kernels::kKvBlockTokens;
}
int64_t kv_on_device(const Options& o) { return kv_of(o, o.kv_sequences); }

engine::EngineOptions engine_options(const Options& o, const std::string& model, DType kv) {
  const bool moves = o.groups() && !o.fits;
  engine::EngineOptions options{.model = model, .context_max = o.longest(), .kv_dtype = kv};
  options.kv_tokens = o.groups() ? kv_of(o, o.at_once) : kv_on_device(o);
  options.step_tokens_max = o.step_tokens;
  options.step_sequences_max = std::max(options.step_sequences_max, o.at_once);
  options.schedule = o.kind();
  options.cut = {.count = o.micro_batches, .rows = o.micro_batch_rows};
  options.parts = {.hot_first = !o.leaves_out("hot-first"),
                   .by_expert = !o.leaves_out("by-expert"),
                   .release_early = !o.leaves_out("early-release")};
  options.kv_home = moves ? engine::KvHome::kHost : engine::KvHome::kDevice;
  options.kv_ring_tokens = moves ? o.ring_tokens : 0;
  return options;
}

/// Experts that a step uses, by layer.
int64_t experts_used(const engine::StepOutcome& outcome) {
  std::set<std::pair<uint32_t, uint32_t>> used;
  for (const engine::SequenceOutcome& s : outcome.sequences)
    for (const auto& count : s.activations) used.emplace(count.layer.value, count.expert.value);
  return std::ssize(used);
}

uint64_t bytes_of_expert(const store::Manifest& manifest) {
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kExpert) return b.length;
  return 0;
}

/// The median of many experts, each met cold.
Result<json> time_expert(store::BlobSource& source, kernels::Ops& ops) {
  const store::Manifest& manifest = source.manifest();
  MOESTRO_ASSIGN_OR_RETURN(const auto model,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  const model::MoeSpec& moe = model.spec.moe();
  MOESTRO_ASSIGN_OR_RETURN(const auto layouts,
                           manifest.expert_layouts(moe.expert, manifest.expert_precisions.front()));
  constexpr int32_t kRows = 16;
  std::vector<float> x(static_cast<size_t>(kRows * moe.expert.hidden), 0.01F), out(x.size());
  std::vector<kernels::RoutedRow> rows;
  for (int32_t r = 0; r < kRows; ++r) rows.push_back({r, 0});
  std::vector<double> times;
  const SteadyClock clock;
  for (int round = 0; round < 3; ++round)
    for (uint32_t l = 0; l < static_cast<uint32_t>(model.spec.moe_layers()); ++l) {
      MOESTRO_ASSIGN_OR_RETURN(const uint32_t blob,
                               manifest.expert_blob(MoeLayerId(l), ExpertId(0), manifest.expert_precisions.front()));
      const auto lease = source.try_pin(blob);
      if (!lease) return unavailable("an expert of a pack in memory is not there");
      const Nanos begin = clock.now();
      ops.expert_ffn(layouts[l], lease->data(), x.data(), rows, 1, out.data(), engine::gated_unit(moe.expert));
      if (round > 0) times.push_back(seconds(clock.now() - begin));
    }
  std::ranges::sort(times);
  return json{{"expert_bytes", bytes_of_expert(manifest)}, {"expert_s", times[times.size() / 2]}, {"rows", kRows}};
}

struct Sums {
  Nanos elapsed{0}, stalled{0};
  uint64_t kv_in = 0, kv_out = 0, experts_used = 0, experts_least = 0, steps = 0;
};

Status run_job(Job& job, engine::Engine& engine, int64_t slots, const Clock& clock, Sums& sums) {
  engine::StepOutcome outcome;
  while (!job.done()) {
    const engine::StepPlan& plan = job.next();
    const Nanos begin = clock.now();
    MOESTRO_RETURN_IF_ERROR(engine.step(plan, outcome));
    sums.elapsed += clock.now() - begin;
    for (const engine::SequenceOutcome& s : outcome.sequences) MOESTRO_RETURN_IF_ERROR(s.status);
    sums.stalled += std::chrono::microseconds(outcome.stall_us);
    sums.kv_in += outcome.device.kv_in_bytes, sums.kv_out += outcome.device.kv_out_bytes;
    const int64_t used = experts_used(outcome);
    sums.experts_used += static_cast<uint64_t>(used);
    // Whatever is kept from step to step, at most so many are there when a step begins.
    sums.experts_least += static_cast<uint64_t>(std::max<int64_t>(0, used - slots));
    ++sums.steps;
    job.step_done();
  }
  return Status::ok();
}

Result<json> run(const Options& o) {
  MOESTRO_ASSIGN_OR_RETURN(auto source, store::ResidentSource::open(o.pack));
  const auto ops = kernels::make_cpu_ops({.threads = o.threads, .isa = kernels::best_isa()});
  if (o.expert_time) return time_expert(*source, *ops);
  const store::Manifest& manifest = source->manifest();
  MOESTRO_ASSIGN_OR_RETURN(const auto model,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  MOESTRO_ASSIGN_OR_RETURN(const DType kv, parse_dtype(o.kv_dtype));
  const engine::EngineOptions options = engine_options(o, manifest.model_name, kv);
  const uint64_t expert_bytes = bytes_of_expert(manifest);
  const auto experts = static_cast<uint64_t>(model.spec.moe_layers() * model.spec.moe().experts);
  uint64_t vram = o.fits ? experts * expert_bytes
                         : static_cast<uint64_t>(o.experts * static_cast<double>(experts)) * expert_bytes;
  if (!o.fits) {  // room for the KV of some sequences; where less of it is in use, experts have the rest
    engine::EngineOptions all = options;
    all.kv_home = engine::KvHome::kDevice, all.kv_tokens = kv_on_device(o);
    MOESTRO_ASSIGN_OR_RETURN(const int64_t bytes, engine::kv_device_bytes(all, model.spec));
    vram += static_cast<uint64_t>(bytes);
  }
  MOESTRO_ASSIGN_OR_RETURN(const config::DeviceSpec spec,
                           config::parse_device("emulated:vram=" + std::to_string(vram) + ",link=" + o.link +
                                                (o.fits ? "" : ",kv=counted")));
  const SteadyClock clock;
  const device::WorkerDeviceOptions on{.spec = spec, .cache = o.cache, .predict = o.predict};
  MOESTRO_RETURN_IF_ERROR(device::check_worker_device(on));
  MOESTRO_ASSIGN_OR_RETURN(auto device, device::WorkerDevice::create(on, options, *source, *ops, nullptr, clock));
  const int64_t slots = device.experts()->slots(), of_layer = model.spec.moe().experts;
  if (slots < of_layer && (o.leaves_out("by-expert") || o.leaves_out("early-release")))
    return invalid_argument("--without by-expert and early-release hold all " + std::to_string(of_layer) +
                            " experts of a layer at once; the device has room for " + std::to_string(slots));
  MOESTRO_ASSIGN_OR_RETURN(auto engine, engine::Engine::create(options, device.source(), device.backend(), clock));
  std::unique_ptr<lanes::ChromeTrace> timeline;
  if (!o.timeline.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(timeline, lanes::ChromeTrace::create(o.timeline, "worker-0"));
    engine->set_timeline(timeline.get());
  }
  MOESTRO_RETURN_IF_ERROR(device.attach(*engine, timeline.get(), nullptr));
  Job job(o, *engine);
  Sums sums;
  MOESTRO_RETURN_IF_ERROR(run_job(job, *engine, device.experts()->slots(), clock, sums));
  const tier::TierCounters counters = device.experts()->tier_counters();
  const auto rate = static_cast<double>(spec.emulated.link_bytes_per_s);
  const double least = static_cast<double>(sums.experts_least * expert_bytes + sums.kv_in);
  return json{{"schedule", o.schedule},
              {"seconds", seconds(sums.elapsed)},
              {"stalled_s", seconds(sums.stalled)},
              {"steps", sums.steps},
              {"running", job.most_running()},
              {"prompt_tokens", job.prompts()},
              {"generated", job.generated()},
              {"tokens_per_s", static_cast<double>(job.generated()) / seconds(sums.elapsed)},
              {"slots", device.experts()->slots()},
              {"experts_used", sums.experts_used},
              {"expert_bytes_moved", counters.moved_bytes},
              {"kv_in_bytes", sums.kv_in},
              {"kv_out_bytes", sums.kv_out},
              {"least_bytes", least},
              {"least_link_s", least / rate},
              {"moved_link_s", (static_cast<double>(counters.moved_bytes + sums.kv_in)) / rate}};
}

int main_of(int argc, char** argv) {
  command_line::App app("A batch job on an emulated device, by a schedule", "moestro_group_bench");
  Options o;
  const auto count = [&app](const char* flag, int64_t& value, const char* help, int64_t least = 1) {
    app.add_option(flag, value, help)->capture_default_str()->check(command_line::Range<int64_t>(least, 1 << 20));
  };
  app.add_option("pack", o.pack, "A pack")->required()->option_text("PACK");
  app.add_option("--schedule", o.schedule, "layerwise, expert-pipeline or cgo")
      ->check(command_line::IsMember({"layerwise", "expert-pipeline", "cgo"}));
  app.add_option("--link", o.link, "Rate of the link")->capture_default_str();
  app.add_option("--experts", o.experts, "Share of the experts that the device has room for")->capture_default_str();
  count("--sequences", o.sequences, "Lines of the job");
  count("--at-once", o.at_once, "Lines that run at a time, with the expert pipeline and cgo");
  count("--kv-sequences", o.kv_sequences, "The longest sequences whose KV the device has room for");
  count("--step-tokens", o.step_tokens, "Tokens of a step");
  count("--ring-tokens", o.ring_tokens, "As the worker's --kv-ring-tokens; 0: auto", 0);
  count("--micro-batches", o.micro_batches, "As the worker's flag; 0: auto", 0);
  count("--micro-batch-rows", o.micro_batch_rows, "As the worker's flag; 0: auto", 0);
  count("--prompt-least", o.prompt_least, "Tokens of the shortest prompt");
  count("--prompt-most", o.prompt_most, "Tokens of the longest prompt");
  count("--generate-least", o.generate_least, "Tokens of the shortest answer");
  count("--generate-most", o.generate_most, "Tokens of the longest answer");
  app.add_option("--kv-dtype", o.kv_dtype, "As the worker's flag")->capture_default_str();
  app.add_option("--predict", o.predict, "As the worker's flag")->capture_default_str();
  app.add_option("--cache", o.cache, "As the worker's flag")->capture_default_str();
  app.add_option("--without", o.without, "Parts of the pipeline to leave out: hot-first, by-expert, early-release");
  app.add_option("--threads", o.threads, "Compute threads; 0: all cores")->capture_default_str();
  app.add_option("--seed", o.seed, "Of lengths and tokens")->capture_default_str();
  app.add_option("--timeline", o.timeline, "Write a Chrome trace");
  app.add_flag("--expert-time", o.expert_time, "Only say how long an expert takes for 16 rows");
  app.add_flag("--fits", o.fits, "The device has room for everything: what the computation alone takes");
  if (const auto code = command_line::parse_program_line(app, argc, argv)) return *code;
  if (o.prompt_most < o.prompt_least || o.generate_most < o.generate_least) {
    std::fprintf(stderr, "moestro_group_bench: the longest prompt or answer is shorter than the shortest\n");
    return 2;
  }
  const auto result = run(o);
  if (!result.is_ok()) {
    std::fprintf(stderr, "moestro_group_bench: %s\n", result.status().message().c_str());
    return 1;
  }
  std::printf("%s\n", result->dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) { return moestro::main_of(argc, argv); }
