#pragma once
// The residency protocol as short programs over shared words, for an exhaustive search: worker 0 with two threads that use blob A, worker 1
// with a thread that uses B and then A, a store, and a drive that goes on writing after its store was killed. The arena has one range, so
// that A and B are in each other's way. Each step is one access to a shared word; these are sequentially consistent, so an interleaving of
// steps is an execution. Any process may be killed before any of its steps; a store that was killed is followed by one that adopts.
//
// The programs are those of StoreClient (thread), StoreMachine and StoreServer (store), and adoption.cc.

#include <array>
#include <compare>
#include <cstdint>
#include <functional>

#include "store/layout/table_layout.h"

namespace moestro::store::model {

/// Ways in which the protocol could be wrong. The search must find each of them.
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
};

inline constexpr int kThreads = 3, kWorkers = 2, kBlobs = 2, kNobody = -1;
constexpr int worker_of(int thread) { return thread == 2 ? 1 : 0; }

enum ThreadAt : uint8_t { kPin, kPinWord, kLook, kAsk, kBell, kLookAgain, kSleep, kUseFirst, kUseLast, kUnpin, kUnpinWord, kDone };
enum StoreAt : uint8_t { kIdle, kSee0, kSee1, kSayEvicting, kCheck0, kCheck1, kRevert, kSayAbsent, kSubmit, kRead, kSayResident, kRing, kKilled,
                         kAdoptSlots, kAdoptWord, kAdoptSee0, kAdoptSee1, kAdoptRing };
enum DriveAt : uint8_t { kStill, kWriteFirst, kWriteLast };

struct World {
  std::array<Residency, kBlobs> word{Residency::kResident, Residency::kAbsent};
  std::array<std::array<bool, kBlobs>, kWorkers> pin{};
  int8_t content = 0;  ///< of the range: a blob, or kNobody while it is half written
  // threads and workers
  std::array<ThreadAt, kThreads> at{};
  std::array<bool, kThreads> rung{};          ///< the bell was rung since this thread looked at it
  std::array<uint8_t, kThreads> uses_done{};
  std::array<uint8_t, kWorkers> uses{};       ///< of worker 0: threads that use A now
  std::array<bool, kWorkers> dead{}, slot_cleared{};
  // messages and store
  std::array<std::array<bool, kBlobs>, kWorkers> asked{};  ///< on the way
  std::array<std::array<bool, kBlobs>, kWorkers> wants{};  ///< known to the store
  StoreAt store = kIdle;
  int8_t holds = 0;      ///< the blob that has the range, as the store knows; kNobody: free
  int8_t working = 0;    ///< the blob that it evicts, reads, or looks at in adoption
  int8_t next = 0;       ///< the blob that is to have the range
  Residency before = Residency::kAbsent;  ///< what an eviction puts back
  uint8_t store_deaths = 0;
  DriveAt drive = kStill, late = kStill;  ///< late: the reads of a store that was killed
  int8_t writing = 0, late_writing = 0;
  auto operator<=>(const World&) const = default;

  bool all_done() const;
  /// The same world without what no step will look at again, and with worker 0's two threads in order: fewer states, no fewer executions.
  World normal() const;
  uint32_t blob_of(int thread) const { return thread == 2 && uses_done[2] == 0 ? 1 : 0; }
};

/// What a step did wrong.
struct Findings {
  bool wrong_bytes = false;   ///< a thread used bytes of a range that was being overwritten, or held another blob
  bool wrong_adopted = false; ///< the successor found other bytes in a range that it took for whole
};

/// Calls `visit(next, is_kill)` for every step that some process, or a kill, can take from `world`.
void for_each_step(const World& world, Mutant mutant, Findings& findings, const std::function<void(const World&, bool is_kill)>& visit);

}  // namespace moestro::store::model
