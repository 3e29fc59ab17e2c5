// DeviceExperts: what copies to the device read in host memory, and for how long it is leased.

#include <utility>

#include "services/worker/device/device_experts.h"

namespace moestro::device {

void DeviceExperts::take_source(tier::Key key, store::Lease lease) {
  Expert& e = experts_[key];
  e.host = std::move(lease);
  e.finds = e.host.finds();
  with_source_.push_back(key);
  link_->set_source(key, e.host.data(), e.host.length());
}

void DeviceExperts::let_ended_go() {
  ended_.clear();
  link_->take_ended(ended_);
  for (Copied& copy : ended_) {
    if (!copy.whole) continue;
    copy.copy = ++experts_[copy.key].copies;
    if (!experts_[copy.key].lent) experts_[copy.key].host.release();
    std::erase(with_source_, copy.key);
  }
  copied_.insert(copied_.end(), ended_.begin(), ended_.end());
}

/// Nobody who waits for host memory may hold some that he is not using (the store's rule against deadlock).
void DeviceExperts::drop_sources_nobody_needs() {
  std::erase_if(with_source_, [this](tier::Key key) {
    if (experts_[key].needed || experts_[key].lent || link_->is_copying(key)) return false;
    link_->set_source(key, nullptr, 0);
    experts_[key].host.release();
    tier_.give_up(key);
    return true;
  });
}

void DeviceExperts::idle() {
  const std::lock_guard lock(link_->mutex());
  let_ended_go();
  if (tier_.idle()) drop_sources_nobody_needs();
}

Status DeviceExperts::find_sources() {
  if (host_fetches_ > 0 || with_source_.size() >= 4 * tier::kSourcesAhead) drop_sources_nobody_needs();
  found_.clear();
  tier_.sources_wanted(host_fetches_ > 0 ? 0 : tier::kSourcesAhead, found_);
  // What has a slot for good is not used in host memory again.
  const store::UseWeight weight = tier_options_.fill ? store::UseWeight::of(0) : store::UseWeight();
  for (const tier::Key key : found_) {
    Expert& e = experts_[key];
    if (e.host || e.host_asked || !e.failure.is_ok()) continue;
    if (auto lease = host_.try_pin(e.blob, weight)) {
      take_source(key, std::move(*lease));
      continue;
    }
    if (!e.needed) continue;  // host memory is told by its own outlook (host_outlook.h)
    const tier::Key full = tier_options_.full_of(key);
    const store::WantedBy why{plan_, MoeLayerId(full / static_cast<uint32_t>(tier_options_.experts))};
    MOESTRO_RETURN_IF_ERROR(host_.fetch(std::span(&e.blob, 1), why));
    e.host_asked = e.from_drive = true;
    e.host_asked_at = clock_.now();
    ++host_fetches_;
  }
  return Status::ok();
}

Status DeviceExperts::take_host_arrival() {
  auto arrival = host_.next_arrival(std::chrono::milliseconds(0));
  if (arrival.is_ok()) {
    const tier::Key key = key_of_[arrival->blob()];
    if (key == kDense && dense_) return dense_->host_has(std::move(*arrival)), Status::ok();
    if (key == kDense || !experts_[key].host_asked) return Status::ok();  // withdrawn before; its lease ends here
    experts_[key].host_asked = false;
    --host_fetches_;
    copied_.push_back({.key = key, .demand = true, .begin = experts_[key].host_asked_at, .end = clock_.now(),
                       .drive = true});
    take_source(key, std::move(*arrival));
    return Status::ok();
  }
  const Code code = arrival.status().code();
  // Exhausted: leases fill the worker's share; copies that are under way give theirs back.
  if (code == Code::kUnavailable || (code == Code::kExhausted && !with_source_.empty())) return Status::ok();
  const auto blob = host_.failed_blob();
  if (!blob) return arrival.status();
  const tier::Key key = key_of_[*blob];
  if (key == kDense) return dense_ && dense_->host_failed(*blob, arrival.status()) ? Status::ok() : arrival.status();
  Expert& e = experts_[key];
  if (std::exchange(e.host_asked, false)) --host_fetches_;
  tier_.copy_failed(clock_.now(), key);
  if (e.needed) e.failure = arrival.status();
  return Status::ok();
}

}  // namespace moestro::device
