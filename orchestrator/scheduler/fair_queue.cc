#include "orchestrator/scheduler/fair_queue.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::orchestrator {

int64_t FairQueue::least_served() const {
  std::optional<int64_t> least;
  for (const auto& [name, flow] : flows_)
    if (flow.present > 0 && (!least || flow.served < *least)) least = flow.served;
  return least.value_or(floor_);
}

FairQueue::Flow& FairQueue::enter(const std::string& name) {
  Flow& flow = flows_[name];
  if (flow.present == 0) {
    const int64_t least = least_served();
    flow.served = std::max(flow.served, least);
    std::erase_if(flows_, [&](const auto& f) {
      return f.second.present == 0 && &f.second != &flow && f.second.served <= least;
    });  // debts that are paid
  }
  ++flow.present;
  ++present_;
  return flow;
}

void FairQueue::leave(Flow& flow) {
  MOESTRO_CHECK(flow.present > 0 && flow.present > flow.waiting.size(), "a sequence leaves a flow that it is not in");
  --flow.present;
  if (--present_ > 0) return;
  for (const auto& [name, f] : flows_) floor_ = std::max(floor_, f.served);
  flows_.clear();
}

void FairQueue::push_back(Flow& flow, Waiting one) {
  flow.waiting.insert(std::ranges::upper_bound(flow.waiting, one.priority, {}, &Waiting::priority), one);
  ++waiting_;
}

void FairQueue::push_front(Flow& flow, Waiting one) {
  flow.waiting.insert(std::ranges::lower_bound(flow.waiting, one.priority, {}, &Waiting::priority), one);
  ++waiting_;
}

void FairQueue::erase(Flow& flow, SequenceId id) {
  const auto it = std::ranges::find(flow.waiting, id, &Waiting::id);
  MOESTRO_CHECK(it != flow.waiting.end(), "a sequence that does not wait is taken from the queue");
  flow.waiting.erase(it);
  --waiting_;
}

std::optional<SequenceId> FairQueue::next() const {
  const Flow* best = nullptr;
  for (const auto& [name, flow] : flows_)
    if (!flow.waiting.empty() && (best == nullptr || flow.served + flow.pending < best->served + best->pending))
      best = &flow;
  if (best == nullptr) return std::nullopt;
  return best->waiting.front().id;
}

std::deque<SequenceId> FairQueue::waiting() const {
  std::deque<SequenceId> all;
  for (const auto& [name, flow] : flows_)
    std::ranges::transform(flow.waiting, std::back_inserter(all), &Waiting::id);
  return all;
}

void FairQueue::forget_pending() {
  for (auto& [name, flow] : flows_) flow.pending = 0;
}

}  // namespace moestro::orchestrator
