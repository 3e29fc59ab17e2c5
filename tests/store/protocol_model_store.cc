#include "tests/store/protocol_model_store.h"

namespace moestro::store::model {
namespace {

constexpr uint8_t kExtrasMax = 1;  ///< prefetches, rereads, replacements in one execution

void ring(World& w, int worker) {
  for (int t = 0; t < kThreads; ++t)
    if (worker_of(t) == worker) w.rung[static_cast<size_t>(t)] = true;
}

/// Those who want `blob` are told.
void tell(World& w, size_t blob) {
  for (size_t me = 0; me < kWorkers; ++me)
    if (w.wants[me][blob]) ring(w, static_cast<int>(me)), w.wants[me][blob] = false;
}

bool wanted(const World& w, size_t blob) { return w.wants[0][blob] || w.wants[1][blob]; }

void hear(const World& now, const Visit& visit) {
  for (size_t me = 0; me < kWorkers; ++me)
    for (size_t blob = 0; blob < kBlobs; ++blob) {
      if (!now.asked[me][blob]) continue;
      World w = now;
      w.asked[me][blob] = false;
      const size_t first = w.word[blob] == Residency::kAlias ? 0 : blob;
      if (w.word[first] == Residency::kResident || w.word[first] == Residency::kBad) ring(w, static_cast<int>(me));
      else w.wants[me][first] = true;
      visit(w, false);
    }
}

void clear_slots(const World& now, Mutant mutant, const Visit& visit) {
  for (size_t me = 0; me < kWorkers; ++me) {
    const bool clears =
        mutant == Mutant::kClearsLiveSlot ? !now.slot_cleared[me] : now.dead[me] && !now.slot_cleared[me];
    if (!clears || mutant == Mutant::kPinsOfDeadStay) continue;
    World w = now;
    w.pin[me] = {}, w.wants[me] = {}, w.slot_cleared[me] = true;
    visit(w, false);
  }
}

/// Makes room for `blob`, by way of an eviction if something has the range.
void begin(World w, int8_t blob, const Visit& visit) {
  w.aim = kLoadNext, w.next = w.working = blob;
  if (w.holds == kNobody) w.store = kSubmit;
  else w.working = w.holds, w.store = kSee0;
  visit(w, false);
}

/// What the scene is about; nobody has asked for it, so that no execution needs it to come to its end.
void extra(const World& now, Scene scene, Mutant mutant, const Visit& visit) {
  if (now.extras == kExtrasMax) return;
  World w = now;
  ++w.extras;
  const auto visit_extra = [&visit](const World& next, bool) { visit(next, true); };
  if (scene == Scene::kReadAhead)
    for (int8_t blob = 0; blob < 2; ++blob)
      if (now.word[static_cast<size_t>(blob)] == Residency::kAbsent) begin(w, blob, visit_extra);
  if (scene == Scene::kScrub && now.holds != kNobody &&
      now.word[static_cast<size_t>(now.holds)] == Residency::kResident) {
    w.content = kNobody;
    visit_extra(w, true);
  }
  if (scene == Scene::kReplace && (now.slot_cleared[1] || mutant == Mutant::kReplacesUnderWorkers)) {
    w.working = w.next = 1, w.aim = kForget;
    const bool there = now.word[1] == Residency::kResident || now.word[1] == Residency::kAdopted;
    w.store = there && mutant != Mutant::kReplacesResident ? kSee0 : kReassign;
    visit_extra(w, true);
  }
}

/// Into the range that it has, under whoever looks at it; first it is said and noted that it was found wrong.
void read_where_it_lies(World w, Scene scene, size_t blob, bool is_extra, Mutant mutant, const Visit& visit) {
  w.extras += is_extra;
  w.holds = w.working = w.next = static_cast<int8_t>(blob), w.aim = kMend;
  const bool notes_first = mutant == Mutant::kNotesWrongFirst || mutant == Mutant::kWrongStaysResident;
  w.store = scene != Scene::kScrub ? kSubmit : notes_first ? kNoteWrong : kSayWrong;
  visit(w, is_extra);
}

/// Its bytes are those of no blob: the scrubber, or the check of an adopted one, finds that.
bool gone_wrong(const World& w, Scene scene, size_t blob) {
  return scene == Scene::kScrub && w.content == kNobody && w.holds == static_cast<int8_t>(blob) &&
         (w.word[blob] == Residency::kResident || w.word[blob] == Residency::kAdopted);
}

/// A blob that is BAD keeps its range for as long as anyone has it pinned: is that still so?
void look_at_held(World w, size_t blob, const Visit& visit) {
  w.working = static_cast<int8_t>(blob), w.store = kLookHeld0;
  visit(w, false);
}

/// What an idle store may do next: read a message, begin a read, check an adopted blob, clear a dead slot.
void idle(const World& now, Scene scene, Mutant mutant, Findings& found, const Visit& visit) {
  hear(now, visit);
  clear_slots(now, mutant, visit);
  extra(now, scene, mutant, visit);
  for (size_t blob = 0; blob < kBlobs; ++blob) {
    if (scene == Scene::kDamaged && now.word[blob] == Residency::kAdopted && now.extras < kExtrasMax)
      read_where_it_lies(now, scene, blob, true, mutant, visit);
    if (now.word[blob] == Residency::kLoading)
      read_where_it_lies(now, scene, blob, false, mutant, visit);  // as a former store had begun to
    if (gone_wrong(now, scene, blob) && !(mutant == Mutant::kWrongStaysResident && now.finds[blob] > 0))
      read_where_it_lies(now, scene, blob, false, mutant, visit);
    if (now.word[blob] == Residency::kBad && now.lies[blob]) look_at_held(now, blob, visit);
    if (now.word[blob] == Residency::kAdopted && !gone_wrong(now, scene, blob)) {
      World w = now;
      found.wrong_adopted |= now.content != content_of(scene, static_cast<int8_t>(blob), now.version);
      w.working = static_cast<int8_t>(blob), w.word[blob] = Residency::kResident, w.store = kRing;
      visit(w, false);
    } else if (wanted(now, blob) && now.word[blob] == Residency::kAbsent &&
               (now.holds == kNobody || now.word[static_cast<size_t>(now.holds)] != Residency::kBad)) {
      begin(now, static_cast<int8_t>(blob), visit);
    }
  }
}

/// The read is done; it was for B, and the store finds A's bytes.
bool is_alias(const World& w, Scene scene) {
  return (scene == Scene::kAlias || scene == Scene::kTwins) && w.working == 1;
}

void step_read(World w, Scene scene, Mutant mutant, const Visit& visit) {
  if (scene == Scene::kReadAhead) {  // messages are heard meanwhile, and what nobody wants is left off
    hear(w, visit);
    if (!wanted(w, static_cast<size_t>(w.working))) {
      World off = w;
      off.store = kLeaveOff;
      if (mutant == Mutant::kFreesBeforeReadEnds)
        off.late = off.drive, off.late_writing = off.writing, off.drive = kStill;
      visit(off, true);
      if (off.drive == kWriteFirst) off.drive = kStill, visit(off, true);  // not begun: never will
    }
  }
  if (w.drive != kStill) return;
  w.store = is_alias(w, scene) ? kHandOver : kSayResident;
  visit(w, false);
  if (w.aim != kMend) return;
  w.store = mutant == Mutant::kFreesUnderLease ? kSayNowhere : kLookHeld0;
  visit(w, true);
}

void step_leave_off(World w, Mutant mutant, const Visit& visit) {
  hear(w, visit);
  if (w.drive != kStill) return;  // the loader reports it when its last read has ended
  w.word[static_cast<size_t>(w.working)] =
      mutant == Mutant::kLeftOffIsResident ? Residency::kResident : Residency::kAbsent;
  if (mutant != Mutant::kLeftOffIsResident) w.holds = kNobody;
  w.store = kIdle;  // whoever wants it by now has it read again
  visit(w, false);
}

void adopt_word(World& w, Mutant mutant) {
  const auto blob = static_cast<size_t>(w.working);
  const Residency was = w.word[blob];
  const bool may_be_leased =
      w.lies[blob] && (was == Residency::kLoading || (was == Residency::kBad && mutant != Mutant::kForgetsKeptPlace));
  if ((was == Residency::kEvicting && mutant != Mutant::kFreesEvictingUnseen) || may_be_leased) {
    w.store = kAdoptSee0;
    return;
  }
  const bool whole = was == Residency::kResident || was == Residency::kAdopted ||
                     (was == Residency::kLoading && mutant == Mutant::kAdoptsLoading);
  if (was != Residency::kAlias) w.word[blob] = whole ? Residency::kAdopted : Residency::kAbsent;
  if (whole) w.holds = w.working;
  w.store = ++w.working < kBlobs ? kAdoptWord : kAdoptRing;
}

void adopt_if_pinned(World& w) {
  const auto blob = static_cast<size_t>(w.working);
  const bool pinned = w.pin[w.store == kAdoptSee0 ? 0 : 1][blob];
  if (!pinned && w.store == kAdoptSee0) {
    w.store = kAdoptSee1;
    return;
  }
  const Residency kept = w.word[blob] == Residency::kEvicting ? Residency::kAdopted : Residency::kLoading;
  w.word[blob] = pinned ? kept : Residency::kAbsent;
  if (pinned) w.holds = w.working;
  w.store = ++w.working < kBlobs ? kAdoptWord : kAdoptRing;
}

/// The eviction has come to where nobody has it.
void evicted(World& w) {
  const auto blob = static_cast<size_t>(w.working);
  w.word[blob] = Residency::kAbsent, w.holds = kNobody;
  w.store = w.aim == kForget ? kReassign : kSubmit;
}

}  // namespace

void step_store(World w, Scene scene, Mutant mutant, Findings& found, const Visit& visit) {
  const auto blob = static_cast<size_t>(w.working);
  switch (w.store) {
    case kIdle: return idle(w, scene, mutant, found, visit);
    case kSee0: w.store = w.pin[0][blob] ? kIdle : kSee1; break;
    case kSee1: w.store = w.pin[1][blob] ? kIdle : kSayEvicting; break;
    case kSayEvicting:
      w.before = w.word[blob], w.word[blob] = Residency::kEvicting;
      w.store = mutant == Mutant::kNoLookAfterEvicting ? kSayAbsent : kCheck0;
      break;
    case kCheck0: w.store = w.pin[0][blob] ? kRevert : kCheck1; break;
    case kCheck1: w.store = w.pin[1][blob] ? kRevert : kSayAbsent; break;
    case kRevert: w.word[blob] = w.before, w.store = kIdle; break;
    case kSayAbsent: evicted(w); break;
    case kSayWrong:
      w.word[blob] = Residency::kLoading, w.lies[blob] = true;
      w.store = mutant == Mutant::kNotesWrongFirst ? kSubmit : kNoteWrong;
      break;
    case kNoteWrong:
      ++w.finds[blob];
      w.wrong_is_known = w.wrong_is_known || (w.content == kNobody && w.extras > 0);
      w.store = mutant == Mutant::kNotesWrongFirst      ? kSayWrong
                : mutant == Mutant::kWrongStaysResident ? kIdle
                                                        : kSubmit;
      break;
    case kReassign: w.version = 1, w.store = kIdle; break;
    case kSubmit:
      w.working = w.next, w.holds = w.next;
      w.word[static_cast<size_t>(w.next)] = Residency::kLoading;
      w.lies[static_cast<size_t>(w.next)] = reads_in_place(scene);
      // Where it lies: what is right stays so, and what is wrong becomes right.
      w.drive = w.aim == kMend ? kWriteLast : kWriteFirst, w.writing = content_of(scene, w.next, w.version);
      w.store = mutant == Mutant::kResidentBeforeRead ? kSayResident : kRead;
      break;
    case kRead: return step_read(w, scene, mutant, visit);
    case kLeaveOff: return step_leave_off(w, mutant, visit);
    case kLookHeld0: w.store = w.pin[0][blob] ? kSayBad : kLookHeld1; break;
    case kLookHeld1: w.store = w.pin[1][blob] ? kSayBad : kSayNowhere; break;
    case kSayNowhere: w.lies[blob] = false, w.store = kSayBad; break;
    case kSayBad:
      w.word[blob] = Residency::kBad, w.holds = w.lies[blob] ? w.working : int8_t{kNobody};
      w.store = kRing;
      break;
    case kSayResident: w.word[blob] = Residency::kResident, w.store = kRing; break;
    case kHandOver:  // A is not there, or B would have found no room: it gets B's range
      w.word[0] = Residency::kResident, w.holds = mutant == Mutant::kHandsOverAndFrees ? kNobody : 0;
      tell(w, 0);
      w.store = kSayAlias;
      break;
    case kSayAlias: w.word[1] = Residency::kAlias, w.store = kRing; break;
    case kRing: tell(w, blob), w.store = kIdle; break;
    case kKilled:  // a successor, which gets the lock when the kernel has finished the last read
      if (w.late != kStill && mutant != Mutant::kAdoptsBeforeLastRead) return;
      w.store = kAdoptSlots, w.holds = kNobody;
      break;
    case kAdoptSlots:
      for (size_t me = 0; me < kWorkers; ++me)
        if (w.dead[me] && mutant != Mutant::kPinsOfDeadStay) w.pin[me] = {}, w.slot_cleared[me] = true;
      w.working = 0, w.store = kAdoptWord;
      break;
    case kAdoptWord: adopt_word(w, mutant); break;
    case kAdoptSee0:
    case kAdoptSee1: adopt_if_pinned(w); break;
    case kAdoptRing:
      if (mutant != Mutant::kNoRingAndNoTimeout) ring(w, 0), ring(w, 1);
      w.working = 0, w.store = kIdle;
      break;
  }
  visit(w, false);
}

}  // namespace moestro::store::model
