// DeviceExperts: dense weights that take turns on the device (device_dense.h).

#include "services/worker/device/device_experts.h"

namespace moestro::device {

std::span<const uint32_t> DeviceExperts::streamed() const {
  return dense_ ? dense_->blobs() : std::span<const uint32_t>();
}

bool DeviceExperts::ask_streamed(uint32_t blob, store::WantedBy why) {
  bool is_on_its_way = false;
  {
    const std::lock_guard lock(link_->mutex());
    is_on_its_way = dense_->ask(blob, why);
  }
  link_->wake();
  return is_on_its_way;
}

std::optional<store::Lease> DeviceExperts::pin_dense(uint32_t blob, store::UseWeight weight) {
  if (!dense_ || !dense_->has(blob)) return host_.try_pin(blob, weight);
  const std::lock_guard lock(link_->mutex());
  if (!link_->failure().is_ok()) return std::nullopt;
  auto lease = dense_->lease(*this, blob);  // take_streamed() says what is wrong
  return lease.is_ok() ? std::move(*lease) : std::nullopt;
}

void DeviceExperts::unpin_dense(uint32_t blob) {
  {
    const std::lock_guard lock(link_->mutex());
    dense_->release(blob);
  }
  link_->wake();  // another one has its place
}

void DeviceExperts::dense_read(uint32_t blob) {
  const std::lock_guard lock(link_->mutex());
  if (dense_) dense_->read(blob);
}

Result<store::Lease> DeviceExperts::take_streamed(uint32_t blob, std::chrono::milliseconds timeout) {
  failed_blob_.reset();
  const Nanos until = clock_.now() + timeout;
  std::unique_lock lock(link_->mutex());
  uint64_t seen = link_->ends();
  while (true) {
    if (const Status& failure = link_->failure(); !failure.is_ok()) return io_error(failure.message());
    let_ended_go();
    auto lease = dense_->lease(*this, blob);
    if (!lease.is_ok()) {
      failed_blob_ = blob;
      // A device that has failed is kUnavailable, which asks to be asked again.
      return lease.status().code() == Code::kUnavailable ? io_error(lease.status().message()) : lease.status();
    }
    if (*lease) return std::move(**lease);
    if (link_->kv_has_ended()) return unavailable("KV has moved, and what waits for it comes first");
    if (dense_->awaits_host()) MOESTRO_RETURN_IF_ERROR(take_host_arrival());
    const Nanos now = clock_.now();
    if (now >= until) return unavailable("no dense weights were copied in time");
    link_->wake();
    link_->wait_for_end(lock, seen, std::min(until, now + (dense_->awaits_host() ? kHostLook : kLongWait)));
  }
}

}  // namespace moestro::device
