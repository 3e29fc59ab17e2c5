#include "tests/store/protocol_model.h"

#include <utility>

#include "tests/store/protocol_model_store.h"

namespace moestro::store::model {
namespace {

int8_t blob_of(const World& w, Scene scene, int thread) {
  const auto& blobs = program(scene, thread);
  const size_t at = w.uses_done[static_cast<size_t>(thread)];
  return at < blobs.size() ? blobs[at] : int8_t{0};
}

/// The thread's pin on `blob` is set (or taken away): the word goes with the first (last) thread of its worker that has
/// it. Count and word are one critical section of the worker, so they are one step.
void hold(World& w, size_t me, size_t blob) {
  if (w.uses[me][blob]++ == 0) w.pin[me][blob] = true;
}
void let_go(World& w, size_t me, size_t blob) {
  if (--w.uses[me][blob] == 0) w.pin[me][blob] = false;
}

void next_use(World& w, Scene scene, int thread) {
  const auto t = static_cast<size_t>(thread);
  w.followed[t] = w.misled[t] = false;
  w.at[t] = ++w.uses_done[t] == program(scene, thread).size() ? kDone : kPin;
}

void step_thread(World w, Scene scene, int thread, Mutant mutant, Findings& found, const Visit& visit) {
  const auto t = static_cast<size_t>(thread), me = static_cast<size_t>(worker_of(thread));
  const auto named = static_cast<size_t>(blob_of(w, scene, thread));
  const size_t blob = w.followed[t] ? 0 : named;                                   // what it looks at and uses
  const size_t pinned = mutant == Mutant::kFollowsWithoutPin ? named : blob;       // what keeps it there
  const bool two_steps = mutant == Mutant::kCountOutsideSection;
  ThreadAt& at = w.at[t];
  const auto look = [&](ThreadAt otherwise) {
    const Residency seen = w.word[blob];
    at = seen == Residency::kResident ? (mutant == Mutant::kCountsAfterLook ? kCountLate : kUseFirst)
         : seen == Residency::kAlias  ? kFollow
         : seen == Residency::kBad    ? kUnpin
                                      : otherwise;
  };
  const bool counts = scene == Scene::kScrub && mutant != Mutant::kCountsAfterLook;
  const auto load_count = [&](ThreadAt then) { w.count[t] = w.finds[blob], at = then; };
  const auto read = [&] {
    const int8_t right = named == 1 && scene == Scene::kReplace ? content_of(scene, 1, w.expected)
                                                                : content_of(scene, static_cast<int8_t>(blob), 0);
    if (scene == Scene::kScrub && w.content == kNobody) w.misled[t] = true;  // what it makes of it may be dropped
    else found.wrong_bytes |= w.content != right;
  };
  switch (at) {
    case kPin:
      if (mutant == Mutant::kPinAfterCheck && w.uses[me][blob] == 0 && w.word[blob] == Residency::kResident) {
        ++w.uses[me][blob], at = kPinWord;
        break;
      }
      if (!two_steps) hold(w, me, blob), at = counts ? kCount : kLook;
      else if (w.uses[me][blob]++ == 0) at = kPinWord;
      else w.pin[me][blob] = true, at = kLook;
      break;
    case kPinWord: w.pin[me][blob] = true, at = two_steps ? kLook : kUseFirst; break;
    case kCount: load_count(kLook); break;
    case kLook: look(kAsk); break;
    case kCountLate: load_count(kUseFirst); break;
    case kFollow:  // pinned there before it is let go of here
      w.followed[t] = true;
      if (mutant != Mutant::kFollowsWithoutPin) hold(w, me, 0);
      at = kLeaveAlias;
      break;
    case kLeaveAlias:
      if (mutant == Mutant::kAliasStaysPinned) --w.uses[me][named];
      else if (mutant != Mutant::kFollowsWithoutPin) let_go(w, me, named);
      at = kLook;
      break;
    case kAsk:  // the pin stays: what is read lands pinned
      if (w.store != kKilled) w.asked[me][blob] = true;
      at = kBell;
      break;
    case kBell: w.rung[t] = false, at = counts ? kCountAgain : kLookAgain; break;
    case kCountAgain: load_count(kLookAgain); break;
    case kLookAgain: look(kSleep); break;
    case kSleep:
      if (!w.rung[t] && mutant == Mutant::kNoRingAndNoTimeout) return;
      at = mutant == Mutant::kNothingSentAgain || mutant == Mutant::kNoRingAndNoTimeout ? kBell : kAsk;
      break;
    case kUseFirst:
      read();
      if (mutant == Mutant::kUnpinsBeforeLastUse) w.pin[me][blob] = false;
      at = kUseLast;
      break;
    case kUseLast: read(), at = scene == Scene::kScrub ? kJudge : kUnpin; break;
    case kJudge: {  // the store knew, and this thread does not hear of it
      const bool told = mutant != Mutant::kNeverAsksTheCount && w.finds[blob] != w.count[t];
      found.wrong_bytes |= w.misled[t] && w.wrong_is_known && !told;
      at = kUnpin;
      break;
    }
    case kUnpin:
      if (two_steps && --w.uses[me][pinned] == 0) at = kUnpinWord;
      else {
        if (!two_steps) let_go(w, me, pinned);
        next_use(w, scene, thread);
      }
      break;
    case kUnpinWord: w.pin[me][pinned] = false, next_use(w, scene, thread); break;
    case kDone: return;
  }
  visit(w, false);
}

void step_drive(const World& world, const Visit& visit) {
  const auto write = [&](DriveAt World::*drive, int8_t World::*content) {
    if (world.*drive == kStill) return;
    World w = world;
    w.content = w.*drive == kWriteFirst ? static_cast<int8_t>(kNobody) : w.*content;
    w.*drive = w.*drive == kWriteFirst ? kWriteLast : kStill;
    visit(w, false);
  };
  write(&World::drive, &World::writing);
  write(&World::late, &World::late_writing);
}

void kill_or_return(const World& world, Scene scene, const Visit& visit) {
  for (size_t me = 0; me < kWorkers; ++me) {
    World w = world;
    if (!world.dead[me]) {  // its words stay as they are; what its threads were at no longer matters
      w.dead[me] = true, w.uses[me] = {};
      for (int t = 0; t < kThreads; ++t)
        if (worker_of(t) == static_cast<int>(me)) w.at[static_cast<size_t>(t)] = kDone;
      visit(w, true);
    } else if (scene == Scene::kReplace && me == 1 && world.slot_cleared[1] && world.attaches == 0 &&
               world.store == kIdle) {
      // Another worker in its slot: new files, and the version of now.
      w.dead[1] = w.slot_cleared[1] = false, w.pin[1] = {}, w.expected = w.version, w.at[2] = kPin, w.uses_done[2] = 0,
      w.rung[2] = false, w.attaches = 1;
      visit(w, true);
    }
  }
  if (world.store == kKilled || world.store_deaths >= store_deaths_max(scene)) return;
  World w = world;  // what it knew and what was on its way to it is gone; what its drive has begun goes on
  w.store = kKilled, w.asked = {}, w.wants = {}, w.holds = 0, w.working = 0, w.next = 0, w.before = Residency::kAbsent;
  ++w.store_deaths;
  w.drive = kStill;
  visit(w, true);  // some of its reads had not been begun: never will
  if (world.drive != kStill) w.late = world.drive, w.late_writing = world.writing, visit(w, true);
}

}  // namespace

int store_deaths_max(Scene scene) {
  return scene == Scene::kPlain || scene == Scene::kDamaged ? 2 : scene == Scene::kTwins ? 0 : 1;
}

const std::vector<int8_t>& program(Scene scene, int thread) {
  static const std::vector<int8_t> a{0}, b{1}, c{2}, ba{1, 0}, cb{2, 1}, nothing;
  if (scene == Scene::kAlias) return thread == 0 ? b : thread == 1 ? nothing : cb;  // C is the rival
  if (scene == Scene::kTwins) return thread == 0 ? a : thread == 1 ? b : c;
  if (scene == Scene::kReplace) return thread == 0 ? a : thread == 1 ? nothing : b;
  if (scene == Scene::kPlain) return thread == 2 ? ba : a;
  return thread == 2 ? ba : thread == 1 ? nothing : a;
}

int8_t content_of(Scene scene, int8_t blob, uint8_t version) {
  if (blob != 1) return blob;
  if (scene == Scene::kAlias || scene == Scene::kTwins) return 0;
  return version == 0 ? int8_t{1} : int8_t{3};
}

bool World::all_done() const {
  for (int t = 0; t < kThreads; ++t)
    if (!dead[static_cast<size_t>(worker_of(t))] && at[static_cast<size_t>(t)] != kDone) return false;
  return true;
}

World World::normal(Scene scene) const {
  World w = *this;
  for (size_t t = 0; t < kThreads; ++t) {
    if (program(scene, static_cast<int>(t)).empty()) w.at[t] = kDone;
    w.rung[t] = w.rung[t] && (w.at[t] == kLookAgain || w.at[t] == kSleep);  // kBell clears it before
    if (w.at[t] == kDone) w.uses_done[t] = 0, w.followed[t] = w.misled[t] = false;
    const bool leased = w.at[t] == kUseFirst || w.at[t] == kUseLast || w.at[t] == kJudge;
    if (!leased && w.at[t] != kLook && w.at[t] != kLookAgain) w.count[t] = 0;
    if (!leased) w.misled[t] = false;
  }
  if (program(scene, 0) == program(scene, 1) && std::pair(w.at[1], w.rung[1]) < std::pair(w.at[0], w.rung[0])) {
    std::swap(w.at[0], w.at[1]), std::swap(w.rung[0], w.rung[1]);
  }
  for (size_t me = 0; me < kWorkers; ++me)
    if (w.dead[me]) w.asked[me] = {};
  if (w.store == kIdle || w.store == kKilled) w.working = w.next = 0, w.aim = kLoadNext;
  if (w.store != kCheck0 && w.store != kCheck1 && w.store != kRevert) w.before = Residency::kAbsent;
  for (size_t blob = 0; blob < kBlobs; ++blob)
    w.lies[blob] = w.lies[blob] && reads_in_place(scene) &&
                   (w.word[blob] == Residency::kLoading || w.word[blob] == Residency::kBad);
  if (w.drive == kStill) w.writing = 0;
  if (w.late == kStill) w.late_writing = 0;
  return w;
}

void for_each_step(const World& world, Scene scene, Mutant mutant, Findings& found, const Visit& visit) {
  for (int t = 0; t < kThreads; ++t)
    if (!world.dead[static_cast<size_t>(worker_of(t))]) step_thread(world, scene, t, mutant, found, visit);
  step_store(world, scene, mutant, found, visit);
  step_drive(world, visit);
  kill_or_return(world, scene, visit);
}

}  // namespace moestro::store::model
