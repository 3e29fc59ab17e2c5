#include "services/worker/worker_device.h"

#include "common/config/units.h"
#include "common/mixed_refusals.h"
#include "common/model/model_spec.h"
#include "common/policy/make_policy.h"
#include "common/prediction/make_predictor.h"
#include "services/worker/cuda/cuda_pass.h"
#include "services/worker/engine/kv_shares.h"

namespace moestro::device {

Status check_worker_device(const WorkerDeviceOptions& options) {
  if (options.spec.kind == config::DeviceSpec::Kind::kCpu && options.cache != "auto")
    return invalid_argument("--cache (workers.cache) '" + options.cache +
                            "' is for a device with a memory of its own: the CPU computes experts where they lie; the "
                            "store's policy is --policy");
  MOESTRO_RETURN_IF_ERROR(
      policy::make_device_policy(options.cache, {1, 1}).status().with_context("--cache (workers.cache)"));
  return prediction::make_predictor(options.predict, {.shape = {.layers = 2, .experts = 2, .top_k = 1}})
      .status()
      .with_context("--predict (workers.predict)");
}

Status take_model(const model::ModelSpec& spec, WorkerDeviceOptions& options) {
  if (!spec.is_encoder_decoder()) return Status::ok();
  if (options.predict != "auto" && options.predict != "none")
    return unsupported("--predict " + options.predict + " with an encoder-decoder model; leave it out");
  options.predict = "none";
  return Status::ok();
}

Result<WorkerDevice> WorkerDevice::create(const WorkerDeviceOptions& options, const engine::EngineOptions& engine,
                                          store::BlobSource& host, kernels::Ops& cpu_ops, cuda::CudaDevice* cuda,
                                          const Clock& clock) {
  if (options.spec.kind != config::DeviceSpec::Kind::kCpu && !host.streamed().empty())
    return unsupported("a device whose host memory does not hold all dense weights: raise --dram (the store's log says "
                       "to how much), or take --device cpu");
  WorkerDevice made(options, engine.expert_precision, host, cpu_ops, cuda, clock);
  if (options.spec.kind != config::DeviceSpec::Kind::kCpu) MOESTRO_RETURN_IF_ERROR(made.give_memory(engine));
  made.host_attends_ = engine.schedule == engine::ScheduleKind::kCgo;
  if (made.host_attends_ && cuda == nullptr) {
    const kernels::OpsOptions& of = cpu_ops.options();
    made.host_ops_ =
        kernels::make_cpu_ops({.threads = of.threads, .deterministic = of.deterministic, .isa = of.isa});
  }
  return made;
}

DType WorkerDevice::precision() const { return precision_.value_or(host_->manifest().expert_precisions.front()); }

/// The KV cache of an emulated device, or what is in use of it where its home is host memory, takes memory before
/// dense weights do, and these before experts.
Status WorkerDevice::divide(const engine::EngineOptions& engine, DeviceExpertsOptions& of) {
  config::EmulatedDevice& device = of.device;
  if (!of.kv && !device.counts_kv && !device.counts_dense) return Status::ok();
  const store::Manifest& manifest = host_->manifest();
  MOESTRO_ASSIGN_OR_RETURN(const auto model,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  uint64_t kv = 0;
  if (of.kv || device.counts_kv) {
    MOESTRO_ASSIGN_OR_RETURN(const int64_t bytes, engine::kv_device_bytes(engine, model.spec));
    kv = static_cast<uint64_t>(bytes);
  }
  if (kv >= device.vram_bytes) {
    const std::string what = "vram=" + config::format_size(device.vram_bytes) +
                             " has no room for experts in addition to the " + config::readable_size(kv);
    if (engine.kv_home == engine::KvHome::kHost)
      return invalid_argument(what + " of KV that are in use at a time (--kv-home host): give the device more, or take "
                              "fewer --kv-ring-tokens or a smaller --context");
    return invalid_argument(what + " of --kv-tokens " + std::to_string(engine.kv_tokens) + " (kv=counted): give the "
                            "device more, or take fewer --kv-tokens, or --kv-home host");
  }
  if (device.counts_dense) {
    const int64_t top_k = model.spec.moe_layers() > 0 ? model.spec.moe().top_k : 1;
    const bool in_turn = !model.spec.is_encoder_decoder();
    if (!in_turn && device.dense_share < 1)
      return unsupported("a model with an encoder where dense weights take turns in memory: take dense=counted, and a "
                         "device with room for all of them");
    MOESTRO_ASSIGN_OR_RETURN(dense_, divide_dense(manifest, of.precision, top_k, device, kv, in_turn));
    of.dense = dense_->turns;
    device.vram_bytes -= dense_->bytes;
  }
  device.vram_bytes -= kv;
  return Status::ok();
}

/// A device's own memory, and what brings experts there.
Status WorkerDevice::give_memory(const engine::EngineOptions& engine) {
  DeviceExpertsOptions of{.device = options_.spec.emulated,
                          .precision = precision(),
                          .mixed = engine.mixed,
                          .cache = options_.cache,
                          .prefetch = options_.predict != "none"};
  of.kv = engine.kv_home == engine::KvHome::kHost;
  if (cuda_ == nullptr) MOESTRO_RETURN_IF_ERROR(divide(engine, of));
  if (cuda_ != nullptr && engine.mixed) return mixed_on_a_gpu();
  if (cuda_ != nullptr) {
    MOESTRO_ASSIGN_OR_RETURN(const cuda::DeviceNeeds needs,
                             cuda::device_needs(host_->manifest(), engine, of.precision));
    MOESTRO_ASSIGN_OR_RETURN(budget_, cuda_->share_out(needs));
    if (budget_.dense.streams()) {
      dense_ = division_of(host_->manifest(), budget_.dense);
      of.dense = dense_->turns;
    }
    of.cuda = CudaSlots{.functions = &cuda_->functions(),
                        .index = cuda_->index(),
                        .compute = cuda_->ops().stream(),
                        .bytes = budget_.slots * needs.expert_bytes};
  }
  MOESTRO_ASSIGN_OR_RETURN(experts_, DeviceExperts::create(*host_, of, *clock_));
  return Status::ok();
}

engine::Backend WorkerDevice::backend() const {
  if (cuda_ == nullptr) {
    engine::Backend made =
        engine::cpu_backend(*cpu_ops_, experts_ ? experts_->kv_link() : nullptr, host_ops_.get());
    made.dense_over_link = dense_.has_value();
    return made;
  }
  engine::Backend made = cuda::cuda_backend({.ops = cuda_->ops(),
                                             .memory = cuda_->memory(),
                                             .host_ops = *cpu_ops_,
                                             .slots = *experts_,
                                             .kv_link = experts_->kv_link(),
                                             .graphs = options_.cuda_graphs});
  made.dense_over_link = dense_.has_value();
  return made;
}

Status WorkerDevice::check() const {
  if (cuda_ != nullptr)
    if (const Status status = cuda_->ops().status(); !status.is_ok())
      return unavailable("the device cuda:" + std::to_string(cuda_->index()) + " has failed: " + status.message() +
                         "; the worker ends");
  return experts_ ? experts_->check() : Status::ok();
}

Status WorkerDevice::attach(engine::Engine& engine, lanes::Timeline* timeline, const activation::HistoryView* history) {
  const bool predicts = options_.predict != "none";
  if (!experts_ && !predicts) return Status::ok();
  if (predicts) {
    MOESTRO_ASSIGN_OR_RETURN(outlook_, HostOutlook::create(*host_, precision(), experts_.get(), *clock_));
  }
  ExpertTier& tier = experts_ ? static_cast<ExpertTier&>(*experts_) : *outlook_;
  const auto top_k = static_cast<int32_t>(engine.spec().moe().top_k);
  std::unique_ptr<prediction::Predictor> predictor;
  if (predicts) {
    const prediction::PredictorShape shape{.layers = tier.layers(), .experts = tier.experts(), .top_k = top_k};
    MOESTRO_ASSIGN_OR_RETURN(predictor,
                             prediction::make_predictor(options_.predict, {.shape = shape, .history = history}));
  }
  foresight_ = std::make_unique<Foresight>(tier, std::move(predictor), top_k, experts_ ? outlook_.get() : nullptr);
  std::vector<int32_t> model_layers;
  for (size_t l = 0; l < engine.spec().layers.size(); ++l)
    if (engine.spec().layers[l].moe_index) model_layers.push_back(static_cast<int32_t>(l));
  foresight_->set_timeline(timeline, std::move(model_layers));
  engine.set_expert_watch(foresight_.get());
  return Status::ok();
}

std::string WorkerDevice::describe() const {
  if (!experts_) return "experts where they lie in the store's memory, prediction " + options_.predict;
  std::string fit = std::to_string(experts_->slots()) + " of " +
                    std::to_string(experts_->layers() * experts_->experts()) + " experts fit the device";
  if (experts_->low_slots() > 0) fit += " and low copies of " + std::to_string(experts_->low_slots());
  if (dense_) fit += ", " + (cuda_ == nullptr ? dense_->describe(options_.spec.emulated) : dense_->describe());
  if (host_attends_) fit += ", the host attends to what decodes";
  return (cuda_ == nullptr ? "" : cuda_->name() + " computes; ") + fit + ", cache " + options_.cache + ", prediction " +
         options_.predict + (experts_->describe().empty() ? "" : "; " + experts_->describe());
}

}  // namespace moestro::device
