#pragma once
// The residency protocol as short programs over shared words, for an exhaustive search: workers 0 (two threads) and 1
// (one thread), a store, and a drive that goes on writing after its store was killed. The arena has one range, so that
// all blobs are in each other's way. Each step is one access to a shared word; these are sequentially consistent, so an
// interleaving of steps is an execution. Any process may be killed before any of its steps; a store that was killed is
// followed by one that adopts.
//
// The programs are those of StoreClient (thread), StoreMachine and StoreServer (store), and adoption.cc. What else a
// store does comes in scenes of its own, each searched as far: all at once would be too many states, and they meet in
// the range and the words alone.

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "store/layout/table_layout.h"

namespace moestro::store::model {

enum class Scene : uint8_t {
  kPlain,      ///< pin, load, evict; the store may die twice
  kReadAhead,  ///< it also reads what nobody asked for, and leaves off amid it
  kScrub,      ///< a blob goes wrong in memory; the store may find that, and reads it again where it lies
  kDamaged,    ///< a successor finds wrong what is under leases of before, reads it again where it lies, and that may
               ///< fail
  kAlias,      ///< B turns out to hold the bytes of A
  kTwins,      ///< the same, and one worker uses both; the store is not killed
  kReplace,    ///< B's pack is replaced once nobody is attached for it, and its entry stands for another blob
};

/// Ways in which the protocol could be wrong. The search must find each of them, in its scene.
enum class Mutant : uint8_t {
  kNone,
  kPinAfterCheck,            ///< a thread loads the word before it sets the pin
  kNoLookAfterEvicting,      ///< the store looks at the pins before it says EVICTING, and not after
  kCountOutsideSection,      ///< use count and pin word of a worker's threads are not changed together
  kClearsLiveSlot,           ///< a slow (stopped) worker is taken for dead
  kPinsOfDeadStay,           ///< a dead worker's slot is never cleared
  kAdoptsBeforeLastRead,     ///< the successor does not wait for the dead store's reads
  kAdoptsLoading,            ///< the successor takes LOADING for RESIDENT
  kFreesEvictingUnseen,      ///< the successor frees EVICTING without a look at the pins
  kNoRingAndNoTimeout,       ///< waits are not bounded, and the successor rings no bell
  kNothingSentAgain,         ///< a fetch that the dead store took with it is not repeated
  kResidentBeforeRead,       ///< RESIDENT is said before the last byte is there
  kUnpinsBeforeLastUse,
  kFreesBeforeReadEnds,      ///< a read that is left off: its range is free before the drive has done with it
  kLeftOffIsResident,        ///< a read that was left off is taken for done
  kWrongStaysResident,       ///< what was found wrong can be leased until nobody has it pinned
  kNotesWrongFirst,          ///< the count of finds grows before the word ceases to say RESIDENT
  kCountsAfterLook,          ///< a thread loads the count of finds after it has seen RESIDENT
  kNeverAsksTheCount,        ///< a thread that lets go does not look whether its blob was found wrong
  kFreesUnderLease,          ///< what could not be read again gives its range back, whoever has it leased
  kForgetsKeptPlace,         ///< the successor takes BAD for free without a look at the pins
  kFollowsWithoutPin,        ///< a thread that has the alias pinned uses what it leads to
  kAliasStaysPinned,         ///< a thread follows an alias and leaves its pin there
  kHandsOverAndFrees,        ///< the range that an alias gives to its first entry is also free
  kReplacesUnderWorkers,     ///< an entry stands for another blob while a worker of the pack before is attached
  kReplacesResident,         ///< an entry stands for another blob while the one before is there
};

inline constexpr int kThreads = 3, kWorkers = 2, kBlobs = 3, kNobody = -1;
constexpr int worker_of(int thread) { return thread == 2 ? 1 : 0; }

/// Which blobs (A is 0, B 1, C 2) a thread uses, one after the other.
const std::vector<int8_t>& program(Scene scene, int thread);
int store_deaths_max(Scene scene);

enum ThreadAt : uint8_t {
  kPin,
  kPinWord,
  kCount,
  kLook,
  kFollow,
  kLeaveAlias,
  kAsk,
  kBell,
  kCountAgain,
  kLookAgain,
  kCountLate,
  kSleep,
  kUseFirst,
  kUseLast,
  kJudge,
  kUnpin,
  kUnpinWord,
  kDone
};
enum StoreAt : uint8_t {
  kIdle,
  kSee0,
  kSee1,
  kSayEvicting,
  kCheck0,
  kCheck1,
  kRevert,
  kSayAbsent,
  kSayWrong,
  kNoteWrong,
  kSubmit,
  kRead,
  kLeaveOff,
  kSayResident,
  kHandOver,
  kSayAlias,
  kLookHeld0,
  kLookHeld1,
  kSayNowhere,
  kSayBad,
  kRing,
  kReassign,
  kKilled,
  kAdoptSlots,
  kAdoptWord,
  kAdoptSee0,
  kAdoptSee1,
  kAdoptRing
};
enum DriveAt : uint8_t { kStill, kWriteFirst, kWriteLast };
/// What the store is at an eviction, or a read, for.
enum Aim : uint8_t { kLoadNext, kForget, kMend };

struct World {
  std::array<Residency, kBlobs> word{Residency::kResident, Residency::kAbsent, Residency::kAbsent};
  std::array<std::array<bool, kBlobs>, kWorkers> pin{};
  int8_t content = 0;  ///< of the range: content_of() a blob, or kNobody while it is half written
  // threads and workers
  std::array<ThreadAt, kThreads> at{};
  std::array<bool, kThreads> rung{};          ///< the bell was rung since this thread looked at it
  std::array<bool, kThreads> followed{};      ///< what it uses now was found to be an alias
  std::array<uint8_t, kThreads> count{};      ///< of finds of its blob, as it had it when it saw RESIDENT; in kScrub
  std::array<bool, kThreads> misled{};        ///< it has read wrong bytes under its lease; in kScrub
  std::array<uint8_t, kThreads> uses_done{};
  std::array<std::array<uint8_t, kBlobs>, kWorkers> uses{};  ///< threads that have the blob pinned
  std::array<bool, kWorkers> dead{}, slot_cleared{};
  // messages and store
  std::array<std::array<bool, kBlobs>, kWorkers> asked{};  ///< on the way
  std::array<std::array<bool, kBlobs>, kWorkers> wants{};  ///< known to the store
  std::array<bool, kBlobs> lies{};  ///< the table names the range for it; of what is LOADING or BAD, where it may be
                                    ///< read where it lies
  std::array<uint8_t, kBlobs> finds{};  ///< how often it was found wrong; in kScrub
  bool wrong_is_known = false;          ///< what went wrong in memory has been found, and that is noted
  StoreAt store = kIdle;
  Aim aim = kLoadNext;
  int8_t holds = 0;      ///< the blob that has the range, as the store knows; kNobody: free
  int8_t working = 0;    ///< the blob that it evicts, reads, or looks at in adoption
  int8_t next = 0;       ///< the blob that is to have the range
  Residency before = Residency::kAbsent;  ///< what an eviction puts back
  uint8_t store_deaths = 0;
  uint8_t extras = 0;    ///< how often it did what the scene is about
  DriveAt drive = kStill, late = kStill;  ///< late: what goes on though its store is gone, or has given it up
  int8_t writing = 0, late_writing = 0;   ///< contents
  uint8_t version = 0, expected = 0;  ///< of B: its pack's, as the directory says; that of the worker attached for it
  uint8_t attaches = 0;                   ///< how often worker 1 came back

  bool operator==(const World& o) const { return std::memcmp(this, &o, sizeof o) == 0; }
  bool all_done() const;
  /// The same world without what no step will look at again, and with equal threads in order: fewer states, no fewer
  /// executions.
  World normal(Scene scene) const;
};
static_assert(std::has_unique_object_representations_v<World>, "compared and hashed by its bytes");

/// What a step did wrong.
struct Findings {
  /// A thread used bytes of a range that was being overwritten, or held another blob; or that the store had found
  /// wrong, and was not told.
  bool wrong_bytes = false;
  bool wrong_adopted = false; ///< the successor found other bytes in a range that it took for whole
};

/// Calls `visit(next, is_kill)` for every step that some process, or a kill, can take from `world`.
void for_each_step(const World& world, Scene scene, Mutant mutant, Findings& findings,
                   const std::function<void(const World&, bool is_kill)>& visit);

}  // namespace moestro::store::model
