#include "services/worker/device/device_dense.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/model/model_spec.h"
#include "common/model/tensor_names.h"

namespace moestro::device {
namespace {

/// By blob: the layer of its tensors; -1: of none, or of several.
std::vector<int32_t> layers_of(const store::Manifest& manifest) {
  constexpr int32_t kNotSeen = -2;
  std::vector<int32_t> found(manifest.blobs.size(), kNotSeen);
  for (const store::PackedTensor& t : manifest.tensors) {
    const auto layer = model::layer_of_tensor(t.name);
    const int32_t now = layer ? static_cast<int32_t>(*layer) : -1;
    if (found[t.blob] == kNotSeen || found[t.blob] == now) found[t.blob] = now;
    else found[t.blob] = -1;
  }
  std::ranges::replace(found, kNotSeen, -1);
  return found;
}

}  // namespace

Result<DeviceDense> DeviceDense::create(store::BlobSource& host, const DenseTurns& turns, EmulatedDense& link,
                                        bool poison) {
  MOESTRO_CHECK(!turns.blobs.empty() && turns.places > 0, "something takes turns, somewhere");
  const store::Manifest& manifest = host.manifest();
  MOESTRO_ASSIGN_OR_RETURN(const auto model,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  const std::vector<int32_t> layers = layers_of(manifest);
  std::vector<Layer> order;
  uint64_t longest = 0;
  for (const uint32_t blob : turns.blobs) {
    if (layers[blob] < 0 || layers[blob] >= std::ssize(model.spec.layers))
      return unsupported("dense weights of several layers in one blob (" + std::to_string(blob) +
                         "), which cannot take turns on the device: pack the model again");
    order.push_back({.blob = blob, .layer = layers[blob], .bytes = manifest.blobs[blob].length});
    longest = std::max(longest, order.back().bytes);
  }
  std::ranges::sort(order, {}, &Layer::layer);
  for (Layer& layer : order)
    layer.moe_layer = static_cast<int32_t>(std::count_if(model.spec.layers.begin(),
                                                         model.spec.layers.begin() + layer.layer,
                                                         [](const auto& l) { return l.moe_index.has_value(); }));
  const auto places = std::min<size_t>(turns.places, order.size());
  constexpr uint64_t kAlign = 4096;  // as blobs lie in the arena
  MOESTRO_ASSIGN_OR_RETURN(SlotMemory memory, SlotMemory::create(static_cast<int32_t>(places),
                                                                 (longest + kAlign - 1) / kAlign * kAlign));
  DeviceDense made(host, link, std::move(memory), poison);
  made.blobs_ = turns.blobs;
  made.order_ = std::move(order);
  made.places_.resize(places);
  return made;
}

bool DeviceDense::has(uint32_t blob) const { return std::ranges::binary_search(blobs_, blob); }

std::optional<uint64_t> DeviceDense::find(uint32_t blob) const {
  for (uint64_t number = first_; begun_ && number < first_ + places_.size(); ++number)
    if (layer_of(number).blob == blob) return number;
  return std::nullopt;
}

bool DeviceDense::ask(uint32_t blob, store::WantedBy why) {
  take_ended();
  why_ = why;
  if (!begun_) {
    const auto at = std::ranges::find(order_, blob, &Layer::blob) - order_.begin();
    const uint64_t steps = next_ / order_.size() + 1;  // numbers never come twice
    first_ = next_ = steps * order_.size() + static_cast<uint64_t>(at);
    begun_ = true;
  }
  const auto number = find(blob);
  if (number) link_->set_step_end((*number / order_.size() + 1) * order_.size());
  if (number && place_of(*number).state == State::kFailed) bring(*number);  // for the step before it was too early
  fill();
  return number.has_value();
}

void DeviceDense::fill() {
  while (begun_ && next_ < first_ + places_.size()) bring(next_++);
}

/// Into its place, which is free.
void DeviceDense::bring(uint64_t number) {
  const uint32_t blob = layer_of(number).blob;
  bytes_ += layer_of(number).bytes;
  if (auto lease = host_->try_pin(blob)) return copy(number, std::move(*lease));
  Place& place = place_of(number);
  const Status asked = host_->fetch(std::span(&blob, 1), why_);
  place.state = asked.is_ok() ? State::kFetched : State::kFailed;
  // Not its kUnavailable: for callers of lease() that is a read which may be tried again at once.
  place.failure = asked.is_ok() ? asked : io_error(asked.message());
  host_fetches_ += asked.is_ok();
}

void DeviceDense::copy(uint64_t number, store::Lease lease) {
  Place& place = place_of(number);
  const auto index = static_cast<uint32_t>(number % places_.size());
  place.state = State::kCopied;
  place.finds = lease.finds();
  place.host = std::move(lease);
  if (poison_) memory_.poison(index);
  const Layer& layer = layer_of(number);
  link_->begin({.number = number,
                .layer = layer.layer,
                .moe_layer = layer.moe_layer,
                .from = place.host.data(),
                .to = memory_.slot(index),
                .bytes = layer.bytes});
}

void DeviceDense::take_ended() {
  ended_.clear();
  link_->take_ended(ended_);
  for (const uint64_t number : ended_) {
    place_of(number).state = State::kWhole;
    place_of(number).host.release();
  }
}

Result<std::optional<store::Lease>> DeviceDense::lease(store::BlobSource& owner, uint32_t blob) {
  take_ended();
  const auto number = find(blob);
  // A step uses one layer after another, so the one that it waits for is the first.
  if (number != first_ || place_of(first_).leased)
    return exhausted("dense weights (blob " + std::to_string(blob) +
                     ") have no place on the device yet: release the layer before them");
  Place& place = place_of(first_);
  if (place.state == State::kFailed) return place.failure;
  if (place.state != State::kWhole) return std::optional<store::Lease>();
  if (host_->finds(blob) != place.finds) {  // the host's bytes were found wrong after they had been copied
    bring(first_);
    return std::optional<store::Lease>();
  }
  place.leased = true;
  const auto index = static_cast<uint32_t>(first_ % places_.size());
  return std::optional(store::Lease(&owner, blob, memory_.slot(index), layer_of(first_).bytes, place.finds));
}

void DeviceDense::release(uint32_t blob) {
  Place& place = place_of(first_);
  if (!begun_ || !place.leased || layer_of(first_).blob != blob) return;  // reset() came before
  place = {};
  ++first_;
  fill();
}

void DeviceDense::reset(std::unique_lock<std::mutex>& lock) {
  link_->abandon(lock);
  for (Place& place : places_) place = {};
  begun_ = false;
  host_fetches_ = 0;
}

void DeviceDense::host_has(store::Lease lease) {
  const auto number = find(lease.blob());
  if (!number || place_of(*number).state != State::kFetched) return;  // withdrawn before
  --host_fetches_;
  copy(*number, std::move(lease));
}

bool DeviceDense::host_failed(uint32_t blob, const Status& why) {
  const auto number = find(blob);
  if (!number || place_of(*number).state != State::kFetched) return false;
  --host_fetches_;
  place_of(*number).state = State::kFailed;
  place_of(*number).failure = why;
  return true;
}

}  // namespace moestro::device
