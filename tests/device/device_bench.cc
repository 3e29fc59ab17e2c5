#include "tests/device/device_bench.h"

#include "common/check.h"
#include "common/prediction/make_predictor.h"

namespace moestro::device::testing {
namespace {

uint64_t expert_bytes(const store::Manifest& manifest) {
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kExpert) return b.length;
  return 0;
}

}  // namespace

DeviceBench::DeviceBench(const engine::testing::Fixture& fixture, const DeviceBenchOptions& options) {
  const auto wrap = [&](std::unique_ptr<store::BlobSource> inner) -> std::unique_ptr<store::BlobSource> {
    host_ = std::move(inner);
    if (options.late_host) host_ = std::make_unique<engine::testing::LateSource>(std::move(host_), options.late);
    const DeviceExpertsOptions of_device{.device = {.vram_bytes = static_cast<uint64_t>(options.slots) * expert_bytes(host_->manifest()),
                                                    .link_bytes_per_s = options.link_bytes_per_s,
                                                    .latency = options.latency},
                                         .precision = options.engine.experts,
                                         .cache = options.cache,
                                         .prefetch = options.predictor != "none",
                                         .poison_slots = true};
    auto device = DeviceExperts::create(*host_, of_device, clock_);
    MOESTRO_CHECK(device.is_ok(), device.status().message());
    device_ = device->get();
    return std::move(*device);
  };
  bench_ = std::make_unique<engine::testing::Bench>(fixture, options.engine, wrap);
  const auto top_k = static_cast<int32_t>(bench_->engine().spec().moe().top_k);
  std::unique_ptr<prediction::Predictor> predictor;
  if (options.predictor != "none") {
    auto made = prediction::make_predictor(options.predictor, {.shape = {.layers = device_->layers(), .experts = device_->experts(), .top_k = top_k}, .history = options.history});
    MOESTRO_CHECK(made.is_ok(), made.status().message());
    predictor = std::move(*made);
  }
  foresight_ = std::make_unique<Foresight>(*device_, std::move(predictor), top_k);
  bench_->engine().set_expert_watch(foresight_.get());
}

}  // namespace moestro::device::testing
