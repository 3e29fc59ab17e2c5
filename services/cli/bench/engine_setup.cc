#include "services/cli/bench/engine_setup.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "common/config/mixed_spec.h"
#include "common/config/units.h"
#include "common/model/mixer.h"
#include "common/model/served_pack.h"
#include "kernels/devices/device_registry.h"
#include "services/worker/choose_schedule.h"
#include "store/client/store_client.h"
#include "store/resident_source.h"

namespace moestro::cli {
namespace {

constexpr uint64_t kDeviceStream = uint64_t{512}
                                   << 20;  ///< many times what any GPU caches, and a product of 4,096 rows fits

std::string number(int64_t n) { return std::to_string(n); }

/// `encodes`: prompts are sources, whose memory has blocks of its own.
int64_t blocks_of(const EngineCase& c, bool encodes) {
  const int64_t before = encodes ? round_up(c.depth, kernels::kKvBlockTokens) : c.depth;
  return c.batch * ceil_div(c.prefill ? c.tokens : before + c.tokens, kernels::kKvBlockTokens);
}

int64_t longest(const EngineCase& c, bool encodes) {
  if (c.prefill) return c.tokens;
  return encodes ? std::max(c.depth, c.tokens) : c.depth + c.tokens;
}

/// A source is read in one step.
Status check_sources(const EngineBenchOptions& o, const std::vector<EngineCase>& cases, int64_t context) {
  for (const EngineCase& c : cases) {
    const int64_t source = c.prefill ? c.tokens : c.depth;
    const std::string what = (c.prefill ? "--prompt " : "--depth ") + number(source);
    if (source > o.step_tokens)
      return invalid_argument(what + ": the source of an encoder-decoder model is read in one step, which has " +
                              number(o.step_tokens) + " tokens (--step-tokens)");
    if (longest(c, true) > context)
      return invalid_argument((source > context ? what : "--generate " + number(c.tokens)) +
                              " is more than the model's context of " + number(context) + " tokens");
  }
  return Status::ok();
}

Status check_context(const std::vector<EngineCase>& cases, int64_t context) {
  for (const EngineCase& c : cases) {
    const std::string limit = " is more than the model's context of " + number(context) + " tokens";
    if (c.prefill && c.tokens > context) return invalid_argument("--prompt " + number(c.tokens) + limit);
    if (!c.prefill && c.depth + c.tokens > context)
      return invalid_argument("--depth " + number(c.depth) + " + --generate " + number(c.tokens) + " = " +
                              number(c.depth + c.tokens) + limit);
  }
  return Status::ok();
}

Status check_cache(const EngineBenchOptions& o, const std::vector<EngineCase>& cases, bool encodes) {
  for (const EngineCase& c : cases) {
    const int64_t tokens = blocks_of(c, encodes) * kernels::kKvBlockTokens;
    if (tokens <= o.kv_tokens) continue;
    const std::string needs = " needs a KV cache of " + number(tokens) + " tokens; --kv-tokens is " +
                              number(o.kv_tokens);
    if (c.prefill) return invalid_argument("--prompt " + number(c.tokens) + needs);
    return invalid_argument("--batch " + number(c.batch) + " of --depth " + number(c.depth) + " + --generate " +
                            number(c.tokens) + needs);
  }
  return Status::ok();
}

Result<kernels::Isa> chosen_isa(const std::string& name) {
  if (name.empty()) return kernels::best_isa();
  std::string names;
  for (const kernels::Isa isa : kernels::kIsas) {
    if (!kernels::has_isa(isa)) continue;
    if (kernels::isa_name(isa) == name) return isa;
    names += (names.empty() ? "" : ", ") + std::string(kernels::isa_name(isa));
  }
  return invalid_argument("--isa " + name + ": here this program runs " + names);
}

Result<DType> chosen_experts(const std::string& name, const store::Manifest& manifest) {
  const std::vector<DType>& held = manifest.expert_precisions;
  if (name.empty()) return held.front();
  MOESTRO_ASSIGN_OR_RETURN(const DType experts, parse_dtype(name));
  if (std::find(held.begin(), held.end(), experts) != held.end()) return experts;
  std::string names;
  for (const DType d : held) names += (names.empty() ? "" : ", ") + std::string(dtype_name(d));
  return invalid_argument("--experts " + name + ": this pack has " + names);
}

Result<std::unique_ptr<store::BlobSource>> attach(const EngineBenchOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(
      auto client, store::StoreClient::attach({.endpoint = o.store,
                                               .model = o.pack,
                                               .client = "bench engine",
                                               .registers_arena = o.device.starts_with("cuda")}));
  return std::unique_ptr<store::BlobSource>(std::move(client));
}

/// Of the whole cache, for whoever reads an error.
Status check_memory(const model::ModelSpec& spec, DType dtype, int64_t kv_tokens, int64_t batch) {
  int64_t per_token = 0;
  for (const model::LayerSpec& layer : spec.layers)
    per_token += ceil_div(model::kv_block_bytes(layer.kv, dtype), kernels::kKvBlockTokens);
  const int64_t states = model::state_budget(spec, kv_tokens, dtype, batch).bytes;
  const std::string beside = states == 0 ? "" : " and the states of " + number(batch) + " sequences";
  const uint64_t bytes = static_cast<uint64_t>(per_token) * static_cast<uint64_t>(kv_tokens) +
                         static_cast<uint64_t>(states),
                 available = memory_available();
  if (available == 0 || bytes <= available) return Status::ok();
  return exhausted("--batch " + number(batch) + ": its KV cache of " + number(kv_tokens) + " tokens" +
                   beside + (states == 0 ? " is " : " are ") + config::readable_size(bytes) + ", and " +
                   config::readable_size(available) + " of memory are free");
}

config::BoxConfig schedule_flags(const EngineBenchOptions& o) {
  config::BoxConfig box;
  box.workers.schedule = o.schedule, box.workers.kv_home = o.kv_home;
  box.workers.deterministic = o.deterministic;
  box.workers.kv_resident_tokens = o.kv_resident_tokens;
  if (o.micro_batches > 0) box.workers.micro_batches = o.micro_batches;
  if (o.kv_ring_tokens > 0) box.workers.kv_ring_tokens = o.kv_ring_tokens;
  return box;
}

Status check_cases(const EngineBenchOptions& o, const std::vector<EngineCase>& cases, const model::ModelSpec& spec) {
  const bool encodes = spec.is_encoder_decoder();
  if (encodes) MOESTRO_RETURN_IF_ERROR(check_sources(o, cases, spec.max_position));
  else if (o.kv_window == 0) MOESTRO_RETURN_IF_ERROR(check_context(cases, spec.max_position));
  return o.kv_tokens > 0 ? check_cache(o, cases, encodes) : Status::ok();
}

/// With room for each of the cases.
Result<engine::EngineOptions> engine_options(const EngineBenchOptions& o, const std::vector<EngineCase>& cases,
                                             const model::ModelSpec& spec, const config::DeviceSpec& device) {
  engine::EngineOptions options;
  options.capacity_factor = o.capacity_factor;
  auto mixed = config::parse_mixed(o.mixed);
  if (!mixed.is_ok()) return mixed.status().with_context("--mixed");
  options.mixed = *mixed;
  MOESTRO_ASSIGN_OR_RETURN(options.kv_dtype, parse_dtype(o.kv_dtype));
  options.visible = {.sinks = o.kv_sinks, .window = o.kv_window};
  options.step_sequences_max = options.context_max = 1;
  int64_t blocks = 1;
  for (const EngineCase& c : cases) {
    blocks = std::max(blocks, blocks_of(c, spec.is_encoder_decoder()));
    options.context_max = std::max(options.context_max, longest(c, spec.is_encoder_decoder()));
    options.step_sequences_max = std::max(options.step_sequences_max, c.batch);
  }
  options.kv_tokens = o.kv_tokens > 0 ? o.kv_tokens : blocks * kernels::kKvBlockTokens;
  const int64_t sequences = options.step_sequences_max;
  MOESTRO_RETURN_IF_ERROR(worker::take_schedule(schedule_flags(o), device.kind, options));
  options.step_sequences_max = sequences;
  options.step_tokens_max = std::max(o.step_tokens, options.step_sequences_max);
  if (spec.has_states()) options.state_slots = options.step_sequences_max;
  options.compute_floor = device.emulated.compute;
  return options;
}

/// The GPU, with the memory that its limits are measured in, which experts then cannot use.
Status open_cuda(const EngineBenchOptions& o, const config::CudaDeviceSpec& device, BenchedEngine& benched) {
  MOESTRO_ASSIGN_OR_RETURN(benched.cuda, cuda::CudaDevice::open(device, o.deterministic));
  if (o.cublas == "auto") benched.cuda->use_cublas();
  if (!o.limits) return Status::ok();
  const auto bytes = o.stream_bytes > 0 ? static_cast<uint64_t>(o.stream_bytes) : kDeviceStream;
  auto limits = kernels::limits::DeviceLimits::create(benched.cuda->functions(), bytes);
  if (!limits.is_ok())
    return limits.status().with_context("--stream " + config::format_size(bytes) + " of device memory");
  benched.device_limits = std::move(*limits);
  return Status::ok();
}

}  // namespace

uint64_t memory_available() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lu", &kib) == 1) return uint64_t{kib} * 1024;
  }
  return 0;
}

Result<std::vector<EngineCase>> bench_cases(const EngineBenchOptions& o) {
  std::vector<EngineCase> cases;
  for (const int64_t tokens : o.prompts)
    if (tokens > 0) cases.push_back({.prefill = true, .tokens = tokens, .batch = o.prompts_at_once});
  for (const int64_t tokens : o.generates)
    for (const int64_t batch : o.batches)
      if (tokens > 0) cases.push_back({.tokens = tokens, .batch = batch, .depth = o.depth});
  if (cases.empty()) return invalid_argument("--prompt 0 and --generate 0 leave nothing to measure");
  return cases;
}

Result<BenchedEngine> open_engine(const EngineBenchOptions& o, const std::vector<EngineCase>& cases,
                                  const Clock& clock) {
  MOESTRO_ASSIGN_OR_RETURN(const kernels::Isa isa, chosen_isa(o.isa));
  BenchedEngine benched;
  // What is wrong with the options shows before gigabytes of a pack are read; a store has its weights already.
  store::Manifest of_pack;
  if (o.store.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(of_pack, store::open_pack(o.pack));
  } else {
    MOESTRO_ASSIGN_OR_RETURN(benched.source, attach(o));
  }
  const store::Manifest& manifest = benched.source ? benched.source->manifest() : of_pack;
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  MOESTRO_RETURN_IF_ERROR(check_cases(o, cases, description.spec));
  MOESTRO_ASSIGN_OR_RETURN(benched.experts, chosen_experts(o.experts, manifest));
  MOESTRO_ASSIGN_OR_RETURN(const config::DeviceSpec spec, config::parse_device(o.device));
  const bool on_gpu = spec.kind == config::DeviceSpec::Kind::kCuda;
  MOESTRO_RETURN_IF_ERROR(model::check_device(description.spec, o.device, on_gpu));
  MOESTRO_ASSIGN_OR_RETURN(engine::EngineOptions options, engine_options(o, cases, description.spec, spec));
  options.model = manifest.model_name, options.expert_precision = benched.experts;
  MOESTRO_RETURN_IF_ERROR(
      check_memory(description.spec, options.kv_dtype, options.kv_tokens, options.step_sequences_max));

  if (!benched.source) {
    MOESTRO_ASSIGN_OR_RETURN(benched.source, store::ResidentSource::open(o.pack));
  }
  benched.ops = kernels::make_cpu_ops({.threads = o.threads, .deterministic = o.deterministic, .isa = isa});
  MOESTRO_RETURN_IF_ERROR(kernels::check_device(o.device));
  device::WorkerDeviceOptions on{
      .spec = spec, .cache = o.cache, .predict = o.predict, .cuda_graphs = o.cuda_graphs == "on"};
  MOESTRO_RETURN_IF_ERROR(device::check_worker_device(on));
  MOESTRO_RETURN_IF_ERROR(device::take_model(description.spec, on));
  if (on_gpu) MOESTRO_RETURN_IF_ERROR(open_cuda(o, spec.cuda, benched));
  MOESTRO_ASSIGN_OR_RETURN(
      auto device, device::WorkerDevice::create(on, options, *benched.source, *benched.ops, benched.cuda.get(), clock));
  benched.device = std::make_unique<device::WorkerDevice>(std::move(device));
  MOESTRO_ASSIGN_OR_RETURN(benched.engine,
                           engine::Engine::create(options, benched.device->source(), benched.device->backend(), clock));
  MOESTRO_RETURN_IF_ERROR(benched.device->attach(*benched.engine, nullptr, nullptr));
  return benched;
}

}  // namespace moestro::cli
