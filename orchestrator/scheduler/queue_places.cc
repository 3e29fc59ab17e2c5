#include "orchestrator/scheduler/queue_places.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::orchestrator {

size_t QueuePlaces::share_with(const std::string& flow) const {
  const size_t flows = there_.size() + (there_.contains(flow) ? 0 : 1);
  return std::max<size_t>(1, max_ / (flows + 1));
}

Status QueuePlaces::enter(const std::string& flow) {
  if (size_ >= max_) return exhausted("the queue is full (" + std::to_string(max_) + " sequences); try again later");
  const auto found = there_.find(flow);
  const size_t held = found == there_.end() ? 0 : found->second;
  if (const size_t share = share_with(flow); size_ >= most_of(flow, max_) && held >= share)
    return exhausted("the queue is nearly full (" + std::to_string(size_) + " of " + std::to_string(max_) +
                     " sequences), " + std::to_string(held) +
                     " of them are yours, and its last places are for those who have fewer than " +
                     std::to_string(share) + "; try again later");
  ++there_[flow];
  ++size_;
  return Status::ok();
}

void QueuePlaces::leave(const std::string& flow) {
  const auto found = there_.find(flow);
  MOESTRO_CHECK(found != there_.end(), "a sequence leaves a queue that it is not in");
  if (--found->second == 0) there_.erase(found);
  --size_;
}

}  // namespace moestro::orchestrator
