// A worker that has died, or attaches anew, will most likely be back as it was. A sequence that it alone can hold waits
// for it, apart, so that nobody waits behind: as long as any sequence waits while there is no worker.

#include <algorithm>
#include <utility>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

Scheduler::Room Scheduler::room_of(const Worker& worker) const {
  return {worker.window.length_max(), worker.kv.total(), worker.kv.block_tokens(), source_max(worker), now_};
}

void Scheduler::miss(const Worker& worker) { missing_.push_back(room_of(worker)); }

/// Whoever could be held by those that it stands for can be held by this one.
void Scheduler::no_longer_missed(const Worker& worker) {
  const Room room = room_of(worker);
  std::erase_if(missing_, [&](const Room& other) { return room.covers(other); });
}

/// Whether a worker that may be back could hold it, with the version that it would then have.
bool Scheduler::is_to_come_back(const Sequence& s) const {
  if (s.version != 0 && version_ != 0 && s.version != version_) return false;
  return std::ranges::any_of(missing_, [&](const Room& room) {
    return now_ - room.left < options_.worker_wait && room.holds(s);
  });
}

void Scheduler::wait_for_room(Sequence& s) {
  dequeue(s);
  s.apart = s.waits_for_room = true;
  s.without_worker_since = now_;
  apart_.push_back(&s);
}

/// Of those that wait apart. True: it waits on, or no longer: it has failed, or is among the others again.
bool Scheduler::waited_for_room(Sequence& s) {
  if (fits_somewhere(s)) {
    if (!std::exchange(s.waits_for_room, false) || s.version != 0) return false;
    dequeue(s);
    enqueue(s, /*first=*/true);
    return true;
  }
  if (!s.waits_for_room) {
    if (!is_to_come_back(s)) return false;
    s.waits_for_room = true, s.without_worker_since = now_;
  }
  if (is_to_come_back(s) && now_ - s.without_worker_since < options_.worker_wait) return true;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - s.without_worker_since);
  fail(s, unavailable("no worker that can hold this request has been there for " + std::to_string(waited.count()) +
                      " s, and it is not held longer (--worker-wait); try again later, or with fewer tokens"));
  return true;
}

}  // namespace moestro::orchestrator
