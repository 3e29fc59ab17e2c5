#include "orchestrator/api/work_queue.h"

#include <algorithm>

namespace moestro::orchestrator {

WorkQueue::WorkQueue(const WorkLimits& limits)
    : limits_(limits), of_one_max_(std::max<size_t>(1, limits.threads - 1)) {}

bool WorkQueue::add(Id id, const std::string& flow, bool heavy) {
  const auto known = by_name_.find(flow);
  const size_t of_this = known == by_name_.end() ? 0 : known->second->waiting.size();
  if (waiting_ >= limits_.queued_max || of_this >= limits_.queued_of_one_max) return false;
  const auto at = known != by_name_.end() ? known->second : flows_.insert(flows_.end(), Flow{flow, {}, 0});
  by_name_[flow] = at;
  at->waiting.push_back({id, heavy});
  places_[id] = {at, heavy, false};
  ++waiting_;
  return true;
}

std::optional<WorkQueue::Id> WorkQueue::next() {
  for (auto flow = flows_.begin(); flow != flows_.end(); ++flow) {
    if (flow->running >= of_one_max_) continue;
    const auto task = std::find_if(flow->waiting.begin(), flow->waiting.end(), [this](const Task& t) {
      return !t.heavy || heavy_running_ < of_one_max_;
    });
    if (task == flow->waiting.end()) continue;
    const Id id = task->id;
    heavy_running_ += task->heavy;
    flow->waiting.erase(task);
    --waiting_;
    ++flow->running;
    places_[id].running = true;
    flows_.splice(flows_.end(), flows_, flow);
    return id;
  }
  return std::nullopt;
}

void WorkQueue::done(Id id) {
  const Place place = places_.extract(id).mapped();
  heavy_running_ -= place.heavy;
  --place.flow->running;
  forget_if_empty(place.flow);
}

bool WorkQueue::remove(Id id) {
  const auto found = places_.find(id);
  if (found == places_.end() || found->second.running) return false;
  const auto flow = found->second.flow;
  std::erase_if(flow->waiting, [id](const Task& t) { return t.id == id; });
  --waiting_;
  places_.erase(found);
  forget_if_empty(flow);
  return true;
}

void WorkQueue::forget_if_empty(Flows::iterator flow) {
  if (flow->running > 0 || !flow->waiting.empty()) return;
  by_name_.erase(flow->name);
  flows_.erase(flow);
}

}  // namespace moestro::orchestrator
