#include "services/worker/device/expert_link.h"

#include <utility>

namespace moestro::device {
namespace {

constexpr Nanos kPause = std::chrono::microseconds(100);  ///< between two chunks: the link was idle

}  // namespace

void ExpertLink::set_source(tier::Key key, const std::byte* data, uint64_t length) {
  sources_[key] = {data, length};
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

void ExpertLink::carried(const tier::Chunk& chunk, Nanos begin, Nanos end) {
  if (open_ && (open_->key != chunk.key || open_->demand != chunk.demand || begin - open_->end > kPause))
    done_.push_back(*std::exchange(open_, std::nullopt));
  if (!open_) open_ = Copied{.key = chunk.key, .demand = chunk.demand, .begin = begin};
  open_->end = end;
  if (!chunk.last) return;
  open_->whole = true;
  done_.push_back(*std::exchange(open_, std::nullopt));
  // Its lease may go now: no copy of the key begins before it is given a source again.
  set_source(chunk.key, nullptr, 0);
  note_end();
}

void ExpertLink::note_end() {
  ++ends_;
  ended_.notify_one();
}

void ExpertLink::fail(const Status& failure) {
  if (!failure_.is_ok()) return;
  failure_ = failure;
  ended_.notify_one();
}

}  // namespace moestro::device
