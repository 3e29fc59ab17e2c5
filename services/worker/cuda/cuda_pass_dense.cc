// CudaPass: layers whose dense weights take turns on the device. Each is held from before it is queued until it will
// not be queued again.

#include <algorithm>

#include "services/worker/cuda/cuda_pass.h"

namespace moestro::cuda {

/// Its shared expert is queued once more if an expert of the layer was missing after all.
bool CudaPass::reads_dense_again(size_t layer) const { return spec().layers[layer].moe.shared_ffn > 0; }

/// Whether the layer may be queued again: it, or one before it, was queued on what a router that has not been read
/// chooses.
bool CudaPass::dense_comes_again(size_t layer) const {
  if (resident_ || routers_.empty()) return false;
  const auto first = static_cast<size_t>(machine_[routers_.front()].layer);
  return layer > first || (layer == first && reads_dense_again(layer));
}

bool CudaPass::try_hold(size_t layer) {
  if (p_.stream == nullptr || !p_.stream->streams(layer)) return true;
  if (std::ranges::find(held_, layer, &HeldLayer::layer) != held_.end()) return true;
  if (!p_.stream->try_hold(layer)) return false;
  held_.push_back({layer});
  return true;
}

Status CudaPass::hold(size_t layer) {
  if (p_.stream == nullptr || queue_.capturing) return Status::ok();  // of a graph they are held before
  MOESTRO_RETURN_IF_ERROR(let_dense_go());
  if (try_hold(layer)) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(step_.wait_for_dense(layer));
  held_.push_back({layer});
  return Status::ok();
}

void CudaPass::reads_dense(size_t layer) {
  const auto held = std::ranges::find(held_, layer, &HeldLayer::layer);
  if (held != held_.end()) held->is = HeldLayer::kQueued;
}

/// Tells the device of what has been queued, and gives places back.
Status CudaPass::let_dense_go() {
  if (std::ranges::any_of(held_, [](const HeldLayer& held) { return held.is == HeldLayer::kQueued; }))
    MOESTRO_RETURN_IF_ERROR(slots_.launched());
  for (HeldLayer& held : held_) {
    if (held.is != HeldLayer::kQueued) continue;
    held.is = HeldLayer::kTold;
    slots_.dense_read(*p_.math.weights.streamed_blob(held.layer));
  }
  while (!held_.empty() && held_.front().is == HeldLayer::kTold && !dense_comes_again(held_.front().layer)) {
    p_.stream->release(held_.front().layer);
    held_.pop_front();
  }
  return Status::ok();
}

/// Of the layers from `first` up to the next router, that takes turns: how many.
size_t CudaPass::turns_from(size_t first) const {
  size_t count = 0;
  for (size_t layer = first; layer < layers_.size(); ++layer) {
    count += p_.stream->streams(layer) ? 1 : 0;
    if (layers_[layer].moe >= 0) break;
  }
  return count;
}

/// Whether what follows the layer's experts can be queued now, and once more if an expert is missing: its dense weights
/// are there, and have places beside those of the layer.
bool CudaPass::has_dense_behind(size_t layer) {
  if (p_.stream == nullptr) return true;
  const size_t kept = p_.stream->streams(layer) && reads_dense_again(layer) ? 1 : 0;
  if (kept + turns_from(layer + 1) > slots_.dense_places() || !let_dense_go().is_ok()) return false;
  for (size_t next = layer + 1; next < layers_.size(); ++next) {
    if (!try_hold(next)) return false;
    if (layers_[next].moe >= 0) break;
  }
  return true;
}

/// Before a segment that begins with this layer's attention: 0 if no layer in it takes turns. Else the place of the
/// first, which says those of all, as places go round. nullopt: they are not there at the same time, so it is no graph.
Result<std::optional<uint64_t>> CudaPass::place_of_segment(size_t first) {
  if (p_.stream == nullptr) return std::optional<uint64_t>(0);
  const size_t count = turns_from(first);
  if (count > slots_.dense_places()) return std::optional<uint64_t>();
  uint64_t place = 0;
  for (size_t layer = first; layer < layers_.size(); ++layer) {
    MOESTRO_RETURN_IF_ERROR(hold(layer));
    if (place == 0 && p_.stream->streams(layer))
      place = reinterpret_cast<uint64_t>(p_.math.weights.place_of(layer));
    if (layers_[layer].moe >= 0) break;
  }
  return std::optional(place);
}

}  // namespace moestro::cuda
