// Every interleaving of the pin and the evict programs: two workers that pin, read and unpin one entry, one store that evicts it and
// reads another blob into its place. Each step is one access to a shared word (they are sequentially consistent, so an interleaving
// is an execution). A worker may die before any step; the store then clears its word, and not before.

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "store/layout/table_layout.h"

namespace moestro::store {
namespace {

struct World {
  // shared words
  Residency state = Residency::kResident;
  bool pin[2] = {false, false};
  int content = 1;  ///< of the range: 1 is the blob, 2 is what took its place
  // programs
  int worker_at[2] = {0, 0};
  bool dead[2] = {false, false};
  int store_at = 0;
  auto key() const {
    return std::tuple(state, pin[0], pin[1], content, worker_at[0], worker_at[1], dead[0], dead[1], store_at);
  }
};

enum WorkerStep { kSetPin, kLoadWord, kReadFirst, kReadLast, kUnpin, kLetGo, kWorkerDone };
enum StoreStep { kLook0, kLook1, kSetEvicting, kCheck0, kCheck1, kSetAbsent, kOverwrite, kRevert, kStoreDone };

/// How a protocol may be broken, to see that the search would notice.
enum class Flaw { kNone, kStoreSkipsSecondLook, kWorkerLoadsFirst };

class Search {
 public:
  explicit Search(Flaw flaw) : flaw_(flaw) {}
  void explore(const World& world) {
    if (!seen_.insert(world.key()).second) return;
    for (int w = 0; w < 2; ++w) {
      if (world.dead[w] || world.worker_at[w] == kWorkerDone) continue;
      World next = world;
      step_worker(next, w);
      explore(next);
      World killed = world;
      killed.dead[w] = true;
      explore(killed);
    }
    for (int w = 0; w < 2; ++w) {
      if (!world.dead[w] || !world.pin[w]) continue;
      World cleared = world;  // the store found the worker's lock free
      cleared.pin[w] = false;
      explore(cleared);
    }
    if (world.store_at != kStoreDone) {
      World next = world;
      step_store(next);
      explore(next);
    }
  }
  size_t states() const { return seen_.size(); }
  bool torn = false;      ///< a worker read bytes of another blob
  bool evicted = false;   ///< the store got its way in some execution
  bool reverted = false;  ///< and gave way in another
  bool both_gave_way = false;

 private:
  void step_worker(World& world, int w) {
    int& at = world.worker_at[w];
    if (flaw_ == Flaw::kWorkerLoadsFirst && at == kSetPin) at = world.state == Residency::kResident ? 100 : kWorkerDone;
    else if (at == 100) world.pin[w] = true, at = kReadFirst;
    else if (at == kSetPin) world.pin[w] = true, at = kLoadWord;
    else if (at == kLoadWord) at = world.state == Residency::kResident ? kReadFirst : kLetGo;
    else if (at == kReadFirst) torn |= world.content != 1, at = kReadLast;
    else if (at == kReadLast) torn |= world.content != 1, at = kUnpin;
    else world.pin[w] = false, at = kWorkerDone;  // kUnpin, kLetGo
  }
  void step_store(World& world) {
    int& at = world.store_at;
    switch (at) {
      case kLook0: at = world.pin[0] ? kStoreDone : kLook1; break;
      case kLook1: at = world.pin[1] ? kStoreDone : kSetEvicting; break;
      case kSetEvicting:
        world.state = Residency::kEvicting;
        at = flaw_ == Flaw::kStoreSkipsSecondLook ? kSetAbsent : kCheck0;
        break;
      case kCheck0: at = world.pin[0] ? kRevert : kCheck1; break;
      case kCheck1: at = world.pin[1] ? kRevert : kSetAbsent; break;
      case kSetAbsent: world.state = Residency::kAbsent, at = kOverwrite; break;
      case kOverwrite: world.content = 2, evicted = true, at = kStoreDone; break;
      case kRevert:
        world.state = Residency::kResident, reverted = true, at = kStoreDone;
        both_gave_way |= world.worker_at[0] == kLetGo || world.worker_at[1] == kLetGo;
        break;
      default: break;
    }
  }
  const Flaw flaw_;
  std::set<decltype(World{}.key())> seen_;
};

TEST(PinProtocol, NoExecutionReadsWhatWasEvicted) {
  Search search(Flaw::kNone);
  search.explore({});
  EXPECT_FALSE(search.torn);
  EXPECT_TRUE(search.evicted);
  EXPECT_TRUE(search.reverted);
  EXPECT_TRUE(search.both_gave_way) << "allowed: it costs a message and a victim";
  EXPECT_GT(search.states(), 500u);
}

TEST(PinProtocol, TheSearchFindsBrokenProtocols) {
  for (const Flaw flaw : {Flaw::kStoreSkipsSecondLook, Flaw::kWorkerLoadsFirst}) {
    Search search(flaw);
    search.explore({});
    EXPECT_TRUE(search.torn);
  }
}

}  // namespace
}  // namespace moestro::store
