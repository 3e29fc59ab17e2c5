#include "common/tier/tier_figures.h"

namespace moestro::tier {
namespace {

uint64_t micros(Nanos time) { return static_cast<uint64_t>(time.count() / 1000); }

}  // namespace

void FiguresSince::take(const DeviceTier& tier, TierFigures& out) {
  const auto layers = tier.layer_counters();
  layers_.resize(layers.size());
  out.layers.resize(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    out.layers[l] = layers[l] - layers_[l];
    layers_[l] = layers[l];
  }
  const TierCounters now = tier.counters();
  out.moved_bytes = now.moved_bytes - told_.moved_bytes;
  out.wasted_bytes = now.wasted_bytes - told_.wasted_bytes;
  out.link_busy_us = micros(now.link_busy) - micros(told_.link_busy);
  out.resident = static_cast<uint32_t>(tier.resident());
  told_ = now;
}

}  // namespace moestro::tier
