#include "tests/device/device_bench.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "common/check.h"
#include "common/prediction/make_predictor.h"
#include "services/worker/cuda/model_on_gpu.h"

namespace moestro::device::testing {
namespace {

/// Of the longest: layers may differ.
uint64_t expert_bytes(const store::Manifest& manifest) {
  uint64_t longest = 0;
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kExpert) longest = std::max(longest, b.length);
  return longest;
}

}  // namespace

std::vector<engine::testing::Fixture> on_gpus(std::vector<engine::testing::Fixture> fixtures) {
  std::erase_if(fixtures, [](const engine::testing::Fixture& fixture) {
    std::ifstream file(fixture.dir / "config.json");
    const std::string config((std::istreambuf_iterator<char>(file)), {});
    const auto described = model::describe_model(config, "");
    MOESTRO_CHECK(described.is_ok(), described.status().message());
    return !cuda::check_on_gpu(described->spec).is_ok();
  });
  return fixtures;
}

std::vector<engine::testing::Fixture> one_of_each_gpu_layer() {
  std::vector<engine::testing::Fixture> found = engine::testing::fixtures();
  constexpr std::string_view kNames[] = {"mixtral_llama3",   "qwen2_moe_shared", "glm4_moe_groups",
                                         "llama4_maverick",  "arctic_parallel",  "qwen3_next_hybrid",
                                         "qwen3_next_types", "deepseek_v3_yarn"};
  std::erase_if(found, [&](const engine::testing::Fixture& fixture) {
    return std::ranges::find(kNames, fixture.name) == std::end(kNames);
  });
  MOESTRO_CHECK(found.size() == std::size(kNames), "the fixtures are in tests/fixtures/models");
  return found;
}

CudaSlots DeviceBench::open_cuda(uint64_t slot_bytes) {
  MOESTRO_CHECK(options_.cuda->use_device(0) == 0, "there is a device");
  auto ops = kernels::cuda::CudaOps::create(*options_.cuda, {.deterministic = options_.engine.deterministic});
  MOESTRO_CHECK(ops.is_ok(), ops.status().message());
  cuda_ops_ = std::move(*ops);
  cuda_memory_ = std::make_unique<kernels::cuda::CudaMemory>(*cuda_ops_);
  constexpr uint64_t kAlign = 256;
  return {.functions = options_.cuda,
          .index = 0,
          .compute = cuda_ops_->stream(),
          .bytes = static_cast<uint64_t>(options_.slots) * ((slot_bytes + kAlign - 1) / kAlign * kAlign),
          .chunk_bytes = options_.chunk_bytes};
}

DeviceBench::DeviceBench(const engine::testing::Fixture& fixture, const DeviceBenchOptions& options)
    : options_(options) {
  options_.engine.clock = options.time;
  const auto wrap = [&](std::unique_ptr<store::BlobSource> inner) -> std::unique_ptr<store::BlobSource> {
    host_ = std::move(inner);
    if (options.late_host) host_ = std::make_unique<engine::testing::LateSource>(std::move(host_), options.late);
    DeviceExpertsOptions of_device{
        .device = {.vram_bytes = static_cast<uint64_t>(options.slots) * expert_bytes(host_->manifest()),
                   .link_bytes_per_s = options.link_bytes_per_s,
                   .latency = options.latency},
        .precision = options.engine.experts == DType::kMixed ? host_->manifest().expert_precisions.front()
                                                             : options.engine.experts,
        .mixed = options.engine.engine.mixed,
        .cache = options.cache,
        .prefetch = options.predictor != "none",
        .poison_slots = true,
        .kv = options.engine.engine.kv_home == engine::KvHome::kHost};
    if (options.dense_places > 0) {
      of_device.dense = DenseTurns{.blobs = store::dense_layers(host_->manifest()), .places = options.dense_places};
      std::erase_if(of_device.dense->blobs, [&, n = 0](uint32_t) mutable { return options.half_of_dense && n++ % 2; });
    }
    if (options.cuda != nullptr) of_device.cuda = open_cuda(expert_bytes(host_->manifest()));
    if (options.time != nullptr)
      of_device.make_link = [time = options.time](tier::DeviceTier& tier, const SlotMemory& slots,
                                                  const LinkOptions& link, uint32_t keys) {
        return std::make_unique<VirtualExpertLink>(tier, slots, link, *time, keys);
      };
    const Clock& clock = options.time != nullptr ? static_cast<const Clock&>(*options.time) : clock_;
    auto device = DeviceExperts::create(*host_, of_device, clock);
    MOESTRO_CHECK(device.is_ok(), device.status().message());
    device_ = device->get();
    return std::move(*device);
  };
  if (options.engine.engine.kv_home == engine::KvHome::kHost)
    options_.engine.make_backend = [this](kernels::Ops& ops, store::BlobSource&) {
      host_ops_ = kernels::make_cpu_ops(
          {.threads = 1, .deterministic = ops.options().deterministic, .isa = ops.options().isa});
      engine::Backend made = engine::cpu_backend(ops, device_->kv_link(), host_ops_.get());
      made.dense_over_link = options_.dense_places > 0;
      return made;
    };
  else if (options.dense_places > 0)
    options_.engine.make_backend = [](kernels::Ops& ops, store::BlobSource&) {
      engine::Backend made = engine::cpu_backend(ops);
      made.dense_over_link = true;
      return made;
    };
  if (options.cuda != nullptr)
    options_.engine.make_backend = [this](kernels::Ops& host_ops, store::BlobSource&) {
      patient_ = std::make_unique<Patient>(*device_, options_);
      cuda::CudaParts parts{.ops = *cuda_ops_,
                            .memory = *cuda_memory_,
                            .host_ops = host_ops,
                            .slots = *patient_,
                            .kv_link = device_->kv_link(),
                            .graphs = options_.graphs};
      if (options_.expects_all) parts.calm_visits = 0;
      engine::Backend made = cuda::cuda_backend(parts);
      made.dense_over_link = options_.dense_places > 0;
      return made;
    };
  bench_ = std::make_unique<engine::testing::Bench>(fixture, options_.engine, wrap);
  MOESTRO_CHECK((patient_ != nullptr) == (options.cuda != nullptr), "the engine computes where it is to");
  const auto top_k = static_cast<int32_t>(bench_->engine().spec().moe().top_k);
  std::unique_ptr<prediction::Predictor> predictor;
  if (options.predictor != "none") {
    auto made = prediction::make_predictor(
        options.predictor, {.shape = {.layers = device_->layers(), .experts = device_->experts(), .top_k = top_k},
                            .history = options.history});
    MOESTRO_CHECK(made.is_ok(), made.status().message());
    predictor = std::move(*made);
  }
  foresight_ = std::make_unique<Foresight>(*device_, std::move(predictor), top_k);
  bench_->engine().set_expert_watch(foresight_.get());
}

}  // namespace moestro::device::testing
