// A worker that has died, or attaches anew, will most likely be back as it was. A sequence that it alone can hold waits
// for it, apart, so that nobody waits behind: as long as any sequence waits while there is no worker.

#include <algorithm>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

Scheduler::Room Scheduler::room_of(const Worker& worker) const {
  Room room = worker.room();
  room.source = source_max(worker), room.left = now_;
  return room;
}

void Scheduler::miss(const Worker& worker) { missing_.push_back(room_of(worker)); }

/// Whoever could be held by those that it stands for can be held by this one. One of an earlier version goes again, and
/// is missed as before.
void Scheduler::no_longer_missed(const Worker& worker) {
  if (!is_current(worker)) return;
  const Room room = room_of(worker);
  std::erase_if(missing_, [&](const Room& other) { return room.covers(other); });
}

/// Whether a worker that may be back could hold it, with the version that it would then have.
bool Scheduler::is_to_come_back(const Sequence& s) const {
  if (is_of_before(s)) return false;
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

/// Those that any worker may compute, and for which one with room is back, go before the others, in their order.
void Scheduler::put_back() {
  std::vector<Sequence*> back;
  for (Sequence* s : apart_)
    if (s->waits_for_room && s->version == 0 && fits_somewhere(*s)) back.push_back(s);
  for (auto s = back.rbegin(); s != back.rend(); ++s) {
    (*s)->waits_for_room = false;
    dequeue(**s);
    enqueue(**s, /*first=*/true);
  }
}

/// Of those that wait apart. True: it waits on, or has failed.
bool Scheduler::waited_for_room(Sequence& s) {
  if (fits_somewhere(s)) {
    s.waits_for_room = false;
    return false;
  }
  if (!s.waits_for_room) {
    if (!is_to_come_back(s)) return false;
    s.waits_for_room = true, s.without_worker_since = now_;
  }
  if (is_of_before(s)) return false;
  if (is_to_come_back(s) && now_ - s.without_worker_since < options_.worker_wait) return true;
  const auto wait = std::chrono::duration_cast<std::chrono::seconds>(options_.worker_wait);
  fail(s, unavailable("no worker that can hold this request has come back within " + std::to_string(wait.count()) +
                      " s (--worker-wait); try again later, or with fewer tokens"));
  return true;
}

}  // namespace moestro::orchestrator
