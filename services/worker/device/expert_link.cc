#include "services/worker/device/expert_link.h"

namespace moestro::device {

void ExpertLink::set_source(tier::Key key, const std::byte* data) {
  sources_[key] = data;
  tier_.source_ready(key, data != nullptr);
}

void ExpertLink::take_ended(std::vector<Copied>& out) {
  out.insert(out.end(), done_.begin(), done_.end());
  done_.clear();
}

void ExpertLink::wait_for_end(std::unique_lock<std::mutex>& lock, uint64_t& seen, Nanos until) {
  const Nanos left = until - clock_.now();
  if (ends_ == seen && failure_.is_ok() && left.count() > 0) ended_.wait_for(lock, left);
  seen = ends_;
}

void ExpertLink::copy_ended(tier::Key key, bool demand, Nanos end) {
  // Its lease may go now: no copy of the key begins before it is given a source again.
  set_source(key, nullptr);
  done_.push_back({key, demand, began_[key], end});
  ++ends_;
  ended_.notify_one();
}

void ExpertLink::fail(const Status& failure) {
  if (!failure_.is_ok()) return;
  failure_ = failure;
  ended_.notify_one();
}

}  // namespace moestro::device
