#include "services/worker/device/dense_division.h"

#include <cstdio>

#include "common/config/units.h"
#include "common/tier/dense_window.h"
#include "services/worker/device/expert_blobs.h"

namespace moestro::device {
namespace {

using config::readable_size;

tier::DenseNeeds needs_of(const store::Manifest& manifest, const ExpertBlobs& experts, int64_t top_k, double share,
                          bool in_turn) {
  tier::DenseNeeds needs;
  needs.expert_bytes_max = experts.bytes, needs.experts_bytes = experts.bytes * experts.blob_of.size();
  needs.experts_at_once = tier::experts_of_two_layers(top_k);
  needs.staying_share = share, needs.on_device = true;
  for (const store::Blob& blob : manifest.blobs)
    if (blob.kind == store::BlobKind::kDense) needs.fixed_bytes += blob.length;
  if (!in_turn) return needs;
  for (const uint32_t blob : store::dense_layers(manifest)) {
    needs.layers.push_back(manifest.blobs[blob].length);
    needs.fixed_bytes -= needs.layers.back();
  }
  return needs;
}

}  // namespace

std::string DenseDivision::describe() const {
  if (!turns) return "all dense weights stay on the device";
  return "dense weights of " + std::to_string(layers - streamed_layers) + " of " + std::to_string(layers) +
         " layers stay on the device, each step copies " + readable_size(streamed_bytes) +
         " of the others over the link";
}

std::string DenseDivision::describe(const config::EmulatedDevice& device) const {
  if (!turns) return describe();
  char rate[32];
  const double copies_s = static_cast<double>(streamed_layers) * std::chrono::duration<double>(device.latency).count();
  const double per_s =
      1 / (static_cast<double>(streamed_bytes) / static_cast<double>(device.link_bytes_per_s) + copies_s);
  std::snprintf(rate, sizeof rate, per_s < 100 ? "%.3g" : "%.0f", per_s);
  return describe() + ": at most " + rate + " tokens/s of each sequence";
}

DenseDivision division_of(const store::Manifest& manifest, const tier::DenseWindow& window) {
  const std::vector<uint32_t> layers = store::dense_layers(manifest);
  DenseDivision made{.layers = static_cast<uint32_t>(layers.size())};
  for (const store::Blob& blob : manifest.blobs)
    if (blob.kind == store::BlobKind::kDense) made.bytes += blob.length;
  if (!window.streams()) return made;
  made.streamed_layers = window.streamed_layers, made.streamed_bytes = window.streamed_bytes;
  made.bytes += window.places * window.place_bytes;
  made.bytes -= window.streamed_bytes;
  DenseTurns turns{.blobs = {}, .places = window.places};
  for (size_t i = 0; i < layers.size(); ++i)
    if (window.streamed[i]) turns.blobs.push_back(layers[i]);
  made.turns = std::move(turns);
  return made;
}

Result<DenseDivision> divide_dense(const store::Manifest& manifest, DType precision, int64_t top_k,
                                   const config::EmulatedDevice& device, uint64_t kv_bytes, bool in_turn) {
  MOESTRO_ASSIGN_OR_RETURN(const ExpertBlobs experts, ExpertBlobs::of(manifest, precision));
  const tier::DenseNeeds needs = needs_of(manifest, experts, top_k, device.dense_share, in_turn);
  const uint64_t least = kv_bytes + tier::dense_bytes_min(needs);
  if (device.vram_bytes < least)
    return invalid_argument(
        "vram=" + config::format_size(device.vram_bytes) + " is too small for '" + manifest.model_name +
        "' with dense=: " + readable_size(tier::dense_bytes_min(needs) - experts.bytes) + " of dense weights" +
        (in_turn ? ", whose layers then take turns" : "") + ", one expert of " + readable_size(experts.bytes) +
        (kv_bytes > 0 ? " and " + readable_size(kv_bytes) + " of KV" : "") +
        " are the least: give the device at least vram=" + config::format_size(least));
  MOESTRO_ASSIGN_OR_RETURN(const tier::DenseWindow window,
                           tier::plan_dense_window(needs, device.vram_bytes - kv_bytes));
  return division_of(manifest, window);
}

}  // namespace moestro::device
