#include "tests/store/protocol_model.h"

#include <utility>

namespace moestro::store::model {
namespace {

using Visit = std::function<void(const World&, bool)>;
constexpr uint8_t kStoreDeathsMax = 2;

void set_pin(World& w, int thread, bool value) { w.pin[static_cast<size_t>(worker_of(thread))][w.blob_of(thread)] = value; }

void ring(World& w, int worker) {
  for (int t = 0; t < kThreads; ++t)
    if (worker_of(t) == worker) w.rung[static_cast<size_t>(t)] = true;
}

void step_thread(World w, int thread, Mutant mutant, Findings& found, const Visit& visit) {
  const auto t = static_cast<size_t>(thread), me = static_cast<size_t>(worker_of(thread));
  const uint32_t blob = w.blob_of(thread);
  const bool two_steps = mutant == Mutant::kCountOutsideSection;
  ThreadAt& at = w.at[t];
  const auto look = [&](ThreadAt otherwise) { at = w.word[blob] == Residency::kResident ? kUseFirst : otherwise; };
  switch (at) {
    case kPin:  // count and word in one critical section of the worker; only the word is shared
      if (mutant == Mutant::kPinAfterCheck && w.uses[me] == 0 && w.word[blob] == Residency::kResident) {
        ++w.uses[me], at = kPinWord;
        break;
      }
      if (w.uses[me]++ == 0 && two_steps) at = kPinWord;
      else set_pin(w, thread, true), at = kLook;
      break;
    case kPinWord: set_pin(w, thread, true), at = two_steps ? kLook : kUseFirst; break;
    case kLook: look(kAsk); break;
    case kAsk:  // the pin stays: what is read lands pinned
      if (w.store != kKilled) w.asked[me][blob] = true;
      at = kBell;
      break;
    case kBell: w.rung[t] = false, at = kLookAgain; break;
    case kLookAgain: look(kSleep); break;
    case kSleep:
      if (!w.rung[t] && mutant == Mutant::kNoRingAndNoTimeout) return;
      at = mutant == Mutant::kNothingSentAgain || mutant == Mutant::kNoRingAndNoTimeout ? kBell : kAsk;
      break;
    case kUseFirst:
      found.wrong_bytes |= w.content != static_cast<int8_t>(blob);
      if (mutant == Mutant::kUnpinsBeforeLastUse) set_pin(w, thread, false);
      at = kUseLast;
      break;
    case kUseLast: found.wrong_bytes |= w.content != static_cast<int8_t>(blob), at = kUnpin; break;
    case kUnpin:
      if (--w.uses[me] == 0 && two_steps) at = kUnpinWord;
      else {
        if (w.uses[me] == 0) set_pin(w, thread, false);
        at = ++w.uses_done[t] == (thread == 2 ? 2 : 1) ? kDone : kPin;
      }
      break;
    case kUnpinWord:
      set_pin(w, thread, false);
      at = ++w.uses_done[t] == (thread == 2 ? 2 : 1) ? kDone : kPin;
      break;
    case kDone: return;
  }
  visit(w, false);
}

bool wanted(const World& w, size_t blob) { return w.wants[0][blob] || w.wants[1][blob]; }

/// What an idle store may do next: read a message, begin a read (by way of an eviction), check an adopted blob, clear a dead slot.
void idle_store(const World& now, Mutant mutant, Findings& found, const Visit& visit) {
  for (size_t me = 0; me < kWorkers; ++me) {
    for (size_t blob = 0; blob < kBlobs; ++blob) {
      if (!now.asked[me][blob]) continue;
      World w = now;
      w.asked[me][blob] = false;
      if (w.word[blob] == Residency::kResident) ring(w, static_cast<int>(me));
      else w.wants[me][blob] = true;
      visit(w, false);
    }
    const bool clears = mutant == Mutant::kClearsLiveSlot ? !now.slot_cleared[me] : now.dead[me] && !now.slot_cleared[me];
    if (clears && mutant != Mutant::kPinsOfDeadStay) {
      World w = now;
      w.pin[me] = {}, w.wants[me] = {}, w.slot_cleared[me] = true;
      visit(w, false);
    }
  }
  for (size_t blob = 0; blob < kBlobs; ++blob) {
    World w = now;
    w.working = static_cast<int8_t>(blob);
    if (now.word[blob] == Residency::kAdopted) {
      found.wrong_adopted |= now.content != static_cast<int8_t>(blob);
      w.word[blob] = Residency::kResident, w.store = kRing;
      visit(w, false);
    } else if (wanted(now, blob) && now.word[blob] == Residency::kAbsent) {
      w.next = w.working;
      if (now.holds == kNobody) w.store = kSubmit;
      else w.working = now.holds, w.store = kSee0;
      visit(w, false);
    }
  }
}

void step_store(World w, Mutant mutant, Findings& found, const Visit& visit) {
  const auto blob = static_cast<size_t>(w.working);
  switch (w.store) {
    case kIdle: return idle_store(w, mutant, found, visit);
    case kSee0: w.store = w.pin[0][blob] ? kIdle : kSee1; break;
    case kSee1: w.store = w.pin[1][blob] ? kIdle : kSayEvicting; break;
    case kSayEvicting:
      w.before = w.word[blob], w.word[blob] = Residency::kEvicting;
      w.store = mutant == Mutant::kNoLookAfterEvicting ? kSayAbsent : kCheck0;
      break;
    case kCheck0: w.store = w.pin[0][blob] ? kRevert : kCheck1; break;
    case kCheck1: w.store = w.pin[1][blob] ? kRevert : kSayAbsent; break;
    case kRevert: w.word[blob] = w.before, w.store = kIdle; break;
    case kSayAbsent: w.word[blob] = Residency::kAbsent, w.holds = kNobody, w.store = kSubmit; break;
    case kSubmit:
      w.working = w.next, w.holds = w.next;
      w.word[static_cast<size_t>(w.next)] = Residency::kLoading;
      w.drive = kWriteFirst, w.writing = w.next;
      w.store = mutant == Mutant::kResidentBeforeRead ? kSayResident : kRead;
      break;
    case kRead:
      if (w.drive != kStill) return;
      w.store = kSayResident;
      break;
    case kSayResident: w.word[blob] = Residency::kResident, w.store = kRing; break;
    case kRing:
      for (size_t me = 0; me < kWorkers; ++me)
        if (w.wants[me][blob]) ring(w, static_cast<int>(me)), w.wants[me][blob] = false;
      w.store = kIdle;
      break;
    case kKilled:  // a successor, which gets the lock when the kernel has finished the last read
      if (w.late != kStill && mutant != Mutant::kAdoptsBeforeLastRead) return;
      w.store = kAdoptSlots, w.holds = kNobody;
      break;
    case kAdoptSlots:
      for (size_t me = 0; me < kWorkers; ++me)
        if (w.dead[me] && mutant != Mutant::kPinsOfDeadStay) w.pin[me] = {}, w.slot_cleared[me] = true;
      w.working = 0, w.store = kAdoptWord;
      break;
    case kAdoptWord: {
      const Residency was = w.word[blob];
      const bool whole = was == Residency::kResident || was == Residency::kAdopted || (was == Residency::kLoading && mutant == Mutant::kAdoptsLoading);
      if (was == Residency::kEvicting && mutant != Mutant::kFreesEvictingUnseen) {
        w.store = kAdoptSee0;
        break;
      }
      w.word[blob] = whole ? Residency::kAdopted : Residency::kAbsent;
      if (whole) w.holds = w.working;
      w.store = ++w.working < kBlobs ? kAdoptWord : kAdoptRing;
      break;
    }
    case kAdoptSee0:
    case kAdoptSee1: {
      const bool pinned = w.pin[w.store == kAdoptSee0 ? 0 : 1][blob];
      if (!pinned && w.store == kAdoptSee0) {
        w.store = kAdoptSee1;
        break;
      }
      w.word[blob] = pinned ? Residency::kAdopted : Residency::kAbsent;
      if (pinned) w.holds = w.working;
      w.store = ++w.working < kBlobs ? kAdoptWord : kAdoptRing;
      break;
    }
    case kAdoptRing:
      if (mutant != Mutant::kNoRingAndNoTimeout) ring(w, 0), ring(w, 1);
      w.working = 0, w.store = kIdle;
      break;
  }
  visit(w, false);
}

}  // namespace

bool World::all_done() const {
  for (int t = 0; t < kThreads; ++t)
    if (!dead[static_cast<size_t>(worker_of(t))] && at[static_cast<size_t>(t)] != kDone) return false;
  return true;
}

World World::normal() const {
  World w = *this;
  for (size_t t = 0; t < kThreads; ++t) w.rung[t] = w.rung[t] && (w.at[t] == kLookAgain || w.at[t] == kSleep);  // kBell clears it before
  if (std::pair(w.at[1], w.rung[1]) < std::pair(w.at[0], w.rung[0])) {
    std::swap(w.at[0], w.at[1]), std::swap(w.rung[0], w.rung[1]), std::swap(w.uses_done[0], w.uses_done[1]);
  }
  for (size_t t = 0; t < 2; ++t) w.uses_done[t] = 0;  // kDone says it
  if (w.at[2] == kDone) w.uses_done[2] = 0;
  for (size_t me = 0; me < kWorkers; ++me)
    if (w.dead[me]) w.asked[me] = {};
  if (w.store == kIdle || w.store == kKilled) w.working = w.next = 0;
  if (w.store != kCheck0 && w.store != kCheck1 && w.store != kRevert) w.before = Residency::kAbsent;
  if (w.drive == kStill) w.writing = 0;
  if (w.late == kStill) w.late_writing = 0;
  return w;
}

void for_each_step(const World& world, Mutant mutant, Findings& found, const Visit& visit) {
  for (int t = 0; t < kThreads; ++t)
    if (!world.dead[static_cast<size_t>(worker_of(t))]) step_thread(world, t, mutant, found, visit);
  step_store(world, mutant, found, visit);
  const auto write = [&](DriveAt World::*drive, int8_t World::*blob) {
    if (world.*drive == kStill) return;
    World w = world;
    w.content = w.*drive == kWriteFirst ? static_cast<int8_t>(kNobody) : w.*blob;
    w.*drive = w.*drive == kWriteFirst ? kWriteLast : kStill;
    visit(w, false);
  };
  write(&World::drive, &World::writing);
  write(&World::late, &World::late_writing);
  for (size_t me = 0; me < kWorkers; ++me) {
    if (world.dead[me]) continue;
    World w = world;  // its words stay as they are; what its threads were at no longer matters
    w.dead[me] = true, w.uses[me] = 0;
    for (int t = 0; t < kThreads; ++t)
      if (worker_of(t) == static_cast<int>(me)) w.at[static_cast<size_t>(t)] = kDone, w.rung[static_cast<size_t>(t)] = false;
    visit(w, true);
  }
  if (world.store != kKilled && world.store_deaths < kStoreDeathsMax) {
    World w = world;  // what it knew and what was on its way to it is gone; what its drive has begun goes on
    w.store = kKilled, w.asked = {}, w.wants = {}, w.holds = 0, w.working = 0, w.next = 0, w.before = Residency::kAbsent;
    ++w.store_deaths;
    w.drive = kStill;
    visit(w, true);  // some of its reads had not been begun: never will
    if (world.drive != kStill) w.late = world.drive, w.late_writing = world.writing, visit(w, true);
  }
}

}  // namespace moestro::store::model
