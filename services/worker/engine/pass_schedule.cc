#include "services/worker/engine/pass_schedule.h"

#include <utility>

namespace moestro::engine {
namespace {

/// A schedule for some steps, and another one for the rest.
class OneOfTwo final : public lanes::Schedule {
 public:
  using Takes = bool(const lanes::StepShape& step);
  OneOfTwo(Takes* takes, std::unique_ptr<lanes::Schedule> one, std::unique_ptr<lanes::Schedule> other)
      : takes_(takes), one_(std::move(one)), other_(std::move(other)) {}
  void begin(const lanes::StepShape& step, lanes::TaskGraph& graph) override {
    now_ = takes_(step) ? one_.get() : other_.get();
    now_->begin(step, graph);
  }
  void expand(int32_t layer, int32_t micro_batch, std::span<const lanes::RoutedExpert> routed,
              std::span<const lanes::Place> places, lanes::TaskGraph& graph) override {
    now_->expand(layer, micro_batch, routed, places, graph);
  }

 private:
  Takes* const takes_;
  std::unique_ptr<lanes::Schedule> one_, other_;
  lanes::Schedule* now_ = nullptr;
};

}  // namespace

std::unique_ptr<lanes::Schedule> make_schedule(const PassParts& parts) {
  auto layerwise = lanes::make_layerwise_schedule(parts.shape);
  if (parts.options.schedule == ScheduleKind::kLayerwise) return layerwise;
  const KvCache& cache = parts.math.cache;
  auto pipeline = lanes::make_expert_pipeline_schedule(
      parts.shape, {.kv_share = static_cast<double>(cache.resident_blocks()) / static_cast<double>(cache.blocks()),
                    .by_expert = parts.options.parts.by_expert,
                    .hot_first = parts.options.parts.hot_first});
  // Prompts would be too much attention for the host: their steps bring the KV to the device.
  if (parts.options.schedule == ScheduleKind::kCgo)
    return std::make_unique<OneOfTwo>([](const lanes::StepShape& step) { return step.decodes; },
                                      lanes::make_cgo_schedule(parts.shape), std::move(pipeline));
  if (cache.has_places()) return pipeline;  // which moves KV, also of one
  // Steps of one micro-batch have nothing to share among several: they are layerwise, and as fast as that where a pass
  // does nothing else for layerwise steps (a GPU's has graphs and runs ahead: docs/decisions/0066).
  return std::make_unique<OneOfTwo>([](const lanes::StepShape& step) { return step.micro_batches.size() <= 1; },
                                    std::move(layerwise), std::move(pipeline));
}

}  // namespace moestro::engine
