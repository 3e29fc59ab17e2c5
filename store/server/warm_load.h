#pragma once
// Progress of reading a warm set. It knows no store: it is told what became of the entries that it named.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace moestro::store {

class WarmLoad {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Item {
    uint32_t entry = 0;
    uint32_t group = 0;  ///< items of one group compete for the same room
    uint64_t bytes = 0;
  };
  enum class Fate : uint8_t { kUnderWay, kThere, kNoRoom, kFailed };
  struct Progress {
    uint64_t blobs = 0, bytes = 0;            ///< of the whole set
    uint64_t blobs_there = 0, bytes_there = 0;
    uint64_t left_out = 0;                    ///< blobs without room, or that could not be read
    double seconds = 0;                       ///< so far, or in all
    bool running = false;
  };

  /// Once, hottest first.
  void plan(std::vector<Item> items, TimePoint now);
  bool running() const { return progress_.running; }
  /// `fate(entry)` says what became of the named items. Returns what to read next, so that at most `bytes_max` are in
  /// flight, or one blob. If one found no room, items of its group that are not smaller are left out, because nothing
  /// is evicted for them.
  template <typename FateOf>
  std::vector<uint32_t> step(FateOf fate, uint64_t bytes_max, TimePoint now) {
    for (const Item& item : std::vector<Item>(named_)) settle(item, fate(item.entry));
    return next(bytes_max, now);
  }
  /// Entries [first, first + count) are no longer in use and leave the set.
  void forget(uint32_t first, uint32_t count);
  Progress progress(TimePoint now) const;
  /// The items that are still to be read, hottest first.
  std::vector<uint32_t> outstanding() const;

 private:
  void settle(const Item& item, Fate fate);
  std::vector<uint32_t> next(uint64_t bytes_max, TimePoint now);

  std::deque<Item> waiting_;
  std::vector<Item> named_;
  std::map<uint32_t, uint64_t> too_long_;  ///< by group
  Progress progress_;
  TimePoint began_{};
};

}  // namespace moestro::store
