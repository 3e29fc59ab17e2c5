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

Result<DeviceDense> DeviceDense::create(store::BlobSource& host, const DenseTurns& turns, DenseLink& link,
                                        const std::optional<CudaSlots>& cuda, bool poison) {
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
  const auto places = static_cast<int32_t>(std::min<size_t>(turns.places, order.size()));
  constexpr uint64_t kAlign = 4096;  // as blobs lie in the arena
  MOESTRO_ASSIGN_OR_RETURN(SlotMemory memory,
                           cuda ? SlotMemory::on_device(*cuda, places, longest, "dense weights that take turns")
                                : SlotMemory::create(places, (longest + kAlign - 1) / kAlign * kAlign));
  DeviceDense made(host, link, std::move(memory), poison);
  made.blobs_ = turns.blobs;
  made.order_ = std::move(order);
  made.places_.resize(static_cast<size_t>(places));
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

/// One lease of a blob in host memory at a time: where there are as many places as layers, the next copy of a layer
/// waits for the end of the one before.
bool DeviceDense::is_leaving(uint32_t blob) const {
  return std::ranges::any_of(leaving_, [blob](const auto& copy) { return copy.second.blob() == blob; });
}

void DeviceDense::fill() {
  while (begun_ && next_ < first_ + places_.size() && !is_leaving(layer_of(next_).blob)) bring(next_++);
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
  const Layer& layer = layer_of(number);
  link_->begin({.number = number,
                .layer = layer.layer,
                .moe_layer = layer.moe_layer,
                .from = place.host.data(),
                .to = memory_.slot(index),
                .bytes = layer.bytes,
                .after = place.after,
                .poison_bytes = poison_ ? memory_.slot_bytes() : 0});
}

void DeviceDense::take_ended() {
  ended_.clear();
  link_->take_ended(ended_);
  for (const uint64_t number : ended_) {
    if (std::erase_if(leaving_, [number](const auto& copy) { return copy.first == number; }) > 0) continue;
    place_of(number).state = State::kWhole;
    place_of(number).host.release();
  }
  fill();
}

bool DeviceDense::follows_leased(uint64_t number) const {
  for (uint64_t before = first_; before < number; ++before)
    if (!places_[before % places_.size()].leased && !places_[before % places_.size()].done) return false;
  const Place& place = places_[number % places_.size()];
  return !place.leased && !place.done;
}

Result<std::optional<store::Lease>> DeviceDense::lease(store::BlobSource& owner, uint32_t blob) {
  take_ended();
  const auto number = find(blob);
  if (!number || !follows_leased(*number))
    return exhausted("dense weights (blob " + std::to_string(blob) +
                     ") have no place on the device yet: release the layer before them");
  Place& place = place_of(*number);
  if (place.state == State::kFailed) return place.failure;
  const bool is_right = host_->finds(blob) == place.finds;
  if (place.state == State::kWhole && !is_right) {  // the host's bytes were found wrong after they had been copied
    bring(*number);
    return std::optional<store::Lease>();
  }
  if (place.state == State::kCopied && is_right) {
    MOESTRO_ASSIGN_OR_RETURN(const bool follows, link_->kernels_may_follow(*number));
    if (!follows) return std::optional<store::Lease>();
  } else if (place.state != State::kWhole) {
    return std::optional<store::Lease>();
  }
  place.leased = true;
  place.after = link_->launches();
  const auto index = static_cast<uint32_t>(*number % places_.size());
  return std::optional(store::Lease(&owner, blob, memory_.slot(index), layer_of(*number).bytes, place.finds));
}

void DeviceDense::read(uint32_t blob) {
  if (const auto number = find(blob); number && place_of(*number).leased) place_of(*number).after = link_->launches();
}

void DeviceDense::release(uint32_t blob) {
  const auto number = find(blob);
  if (!number || !place_of(*number).leased) return;  // reset() came before
  place_of(*number).leased = false, place_of(*number).done = true;
  while (place_of(first_).done) vacate(first_++);
  fill();
}

void DeviceDense::vacate(uint64_t number) {
  Place& place = place_of(number);
  if (place.state == State::kCopied) leaving_.emplace_back(number, std::move(place.host));
  const uint64_t after = place.after;
  place = {};
  place.after = after;
}

void DeviceDense::reset(std::unique_lock<std::mutex>& lock) {
  link_->abandon(lock);
  leaving_.clear();
  for (Place& place : places_) {
    place = {};
    place.after = link_->launches();
  }
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
