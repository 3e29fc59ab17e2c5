#pragma once
// The residency protocol as short programs over shared words, for an exhaustive search: workers 0 (two threads) and 1
// (one thread), a store, and a drive that continues to write after its store was killed. The arena has one range, so
// that all blobs compete for it. Each step is one access to a shared word; these are sequentially consistent, so an
// interleaving of steps is an execution. Any process may be killed before any of its steps; a killed store is followed
// by one that adopts.
//
// The programs are those of StoreClient (thread), StoreMachine and StoreServer (store), and adoption.cc. Other
// functions of a store have their own scenes, each searched completely. All at once would be too many states, and they
// only interact through the range and the words.

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
  kReadAhead,  ///< it also prefetches, and cancels such reads
  kScrub,      ///< a blob is damaged in memory; the store may find that, and reads it again in place
  kDamaged,    ///< a successor finds a damaged blob under earlier leases, and reads it again in place, which may fail
  kAlias,      ///< B turns out to hold the bytes of A
  kTwins,      ///< the same, and one worker uses both; the store is not killed
  kReplace,    ///< B's pack is replaced when no worker is attached for it, and its entry gets another blob
};

/// Mistakes in the protocol. The search must find each of them in its scene.
enum class Mutant : uint8_t {
  kNone,
  kPinAfterCheck,            ///< a thread loads the word before it sets the pin
  kNoLookAfterEvicting,      ///< the store reads the pins before it says EVICTING, and not after
  kCountOutsideSection,      ///< use count and pin word of a worker's threads are not changed together
  kClearsLiveSlot,           ///< a slow (stopped) worker is considered dead
  kPinsOfDeadStay,           ///< a dead worker's slot is never cleared
  kAdoptsBeforeLastRead,     ///< the successor does not wait for the dead store's reads
  kAdoptsLoading,            ///< the successor takes LOADING for RESIDENT
  kFreesEvictingUnseen,      ///< the successor frees EVICTING without reading the pins
  kNoRingAndNoTimeout,       ///< waits are not bounded, and the successor rings no bell
  kNothingSentAgain,         ///< a fetch that was lost with the dead store is not repeated
  kResidentBeforeRead,       ///< RESIDENT is written before the last byte has arrived
  kUnpinsBeforeLastUse,
  kFreesBeforeReadEnds,      ///< the range of a cancelled read is free before the drive has finished with it
  kLeftOffIsResident,        ///< a cancelled read counts as complete
  kWrongStaysResident,       ///< a damaged blob can be leased until no worker has it pinned
  kNotesWrongFirst,          ///< the count of finds is increased while the word still says RESIDENT
  kCountsAfterLook,          ///< a thread loads the count of finds after it has seen RESIDENT
  kNeverAsksTheCount,        ///< a thread that releases a blob does not check whether it was found wrong
  kFreesUnderLease,          ///< a blob that could not be read again frees its range while it is leased
  kForgetsKeptPlace,         ///< the successor frees BAD without reading the pins
  kFollowsWithoutPin,        ///< a thread that has pinned the alias uses the first entry without pinning it
  kAliasStaysPinned,         ///< a thread follows an alias and leaves its pin there
  kHandsOverAndFrees,        ///< the range that an alias gives to its first entry is also free
  kReplacesUnderWorkers,     ///< an entry gets another blob while a worker of the previous pack is attached
  kReplacesResident,         ///< an entry gets another blob while the previous one is resident
};

inline constexpr int kThreads = 3, kWorkers = 2, kBlobs = 3, kNobody = -1;
constexpr int worker_of(int thread) { return thread == 2 ? 1 : 0; }

/// The blobs (A is 0, B 1, C 2) that a thread uses, in order.
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
/// The purpose of the store's current eviction or read.
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
