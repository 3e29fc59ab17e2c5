// DeviceExperts: missing experts that the host computes meanwhile (slot_table.h).

#include "services/worker/device/device_experts.h"
#include "services/worker/device/expert_link.h"

namespace moestro::device {

void DeviceExperts::choose_for_cpu(std::span<Missing> missing) {
  choices_.clear();
  for (const Missing& m : missing) choices_.push_back({.full = key_of_[m.blob], .cpu = m.cpu});
  {
    const std::lock_guard lock(link_->mutex());
    tier_.choose(choices_);
  }
  for (size_t i = 0; i < missing.size(); ++i) missing[i].on_cpu = choices_[i].way == tier::Way::kCpu;
}

std::optional<store::Lease> DeviceExperts::lease_host(uint32_t blob) {
  const tier::Key key = key_of_[blob];
  const std::lock_guard lock(link_->mutex());
  let_ended_go();
  Expert& e = experts_[key];
  if (!e.needed || tier_.slot_of(key) || e.host_asked || !e.failure.is_ok()) return std::nullopt;
  if (!e.host) {
    auto lease = host_.try_pin(blob);
    if (!lease) return std::nullopt;
    take_source(key, std::move(*lease));
  }
  e.needed = false, e.lent = true;
  tier_.computed_elsewhere(key);
  return store::Lease(this, blob, e.host.data(), e.host.length(), e.finds);
}

void DeviceExperts::decided() {
  bool wake = false;
  {
    const std::lock_guard lock(link_->mutex());
    tier_.hold_demands(false);
    wake = link_awake();
  }
  if (wake) link_->wake();
}

/// A copy that has begun goes on with its source.
void DeviceExperts::take_back(tier::Key key) {
  Expert& e = experts_[key];
  e.lent = false;
  if (tier_.has_begun(key)) return;
  if (std::erase(with_source_, key) > 0) link_->set_source(key, nullptr, 0);
  e.host.release();
}

}  // namespace moestro::device
