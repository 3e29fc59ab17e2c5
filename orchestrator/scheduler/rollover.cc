// Another version of the weights takes the place of the one before, while requests are answered.
//
// A sequence of which nothing has been given out may be computed with any version; from then on it has one. New ones go
// to workers of the version that is served. Workers of another one end what they have, then attach anew, which gives
// them the served one. As long as no worker has that, one leaves first, and the others take new sequences meanwhile: a
// pack that no worker can serve costs one of them. When it is back the others leave.
//
// Sequences that wait, but not for any worker, are set apart, so that nobody waits behind them. Where the last worker
// of their version is gone they fail, unless that is the served one: then it will be back.

#include <algorithm>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

bool Scheduler::is_current(const Worker& worker) const { return version_ == 0 || worker.version == version_; }

bool Scheduler::current_there() const {
  return std::ranges::any_of(workers_, [this](const auto& entry) { return is_current(*entry.second); });
}

bool Scheduler::version_there(uint64_t version) const {
  return std::ranges::any_of(workers_, [version](const auto& entry) { return entry.second->version == version; });
}

/// Of all workers, and the one that is served.
bool Scheduler::is_everywhere(uint64_t version) const {
  return (version_ == 0 || version_ == version) &&
         std::ranges::all_of(workers_, [version](const auto& entry) { return entry.second->version == version; });
}

/// Its answer has begun with a version that no worker gets any more.
bool Scheduler::is_of_before(const Sequence& s) const {
  return s.version != 0 && version_ != 0 && s.version != version_;
}

bool Scheduler::takes(const Worker& worker, const Sequence& s) const {
  if (s.version != 0) return worker.version == s.version;
  return is_current(worker) || (!worker.leaving && !current_there());
}

void Scheduler::on(VersionServed&& event) {
  if (event.version == version_) return;
  version_ = event.version;
  renewed_first_ = false;
  for (const auto& [id, w] : workers_) w->leaving = false, w->leaves_from = now_;
  set_apart();
}

/// Those that wait, and that not every worker may compute.
void Scheduler::set_apart() {
  for (const FairQueue* queue : {&interactive_, &batches_})
    for (const SequenceId id : queue->waiting()) {
      Sequence& s = *find(id);
      if (s.version == 0 || is_everywhere(s.version)) continue;
      dequeue(s);
      enqueue(s, /*first=*/false);
    }
}

void Scheduler::admit_apart(std::vector<Sequence*>& admitted) {
  put_back();
  for (Sequence* s : std::vector(apart_)) {
    if (waited_for_room(*s)) continue;
    if (!version_there(s->version) || (is_of_before(*s) && !fits_somewhere(*s))) {
      if (s->version == version_) fail_if_forgotten(*s);
      else
        fail(*s, unavailable("the model's pack was replaced while this request was answered, and no worker of the "
                             "version before is left that can go on with it; send it again"));
      continue;
    }
    s->without_worker_since = now_;
    if (!fits_somewhere(*s)) fail_for_want_of_room(*s);
    else if (const Place place = choose_worker(*s); place.worker != nullptr) admit_to(place, *s, admitted);
  }
}

void Scheduler::begin_to_leave() {
  const bool all = current_there();
  Worker* first = nullptr;
  for (const auto& [id, w] : workers_) {
    if (is_current(*w) || now_ < w->leaves_from) continue;
    if (all) w->leaving = true;
    else if (first == nullptr || w->running.size() < first->running.size()) first = w.get();
  }
  const bool one_leaves = std::ranges::any_of(workers_, [](const auto& entry) { return entry.second->leaving; });
  if (first != nullptr && !one_leaves && !renewed_first_) first->leaving = true;
}

/// Whoever waits for a worker of its version.
bool Scheduler::is_awaited(const Worker& worker) const {
  return std::ranges::any_of(
      apart_, [&](const Sequence* s) { return s->version != 0 && s->version == worker.version; });
}

void Scheduler::let_leave() {
  std::vector<WorkerId> gone;
  for (const auto& [id, w] : workers_)
    if (w->leaving && w->running.empty() && w->flights.empty() && !is_awaited(*w)) gone.push_back(id);
  for (const WorkerId id : gone) {
    if (!current_there()) renewed_first_ = true;
    actions_.push_back(RenewWorker{id});
    forget_worker(id);
  }
}

}  // namespace moestro::orchestrator
