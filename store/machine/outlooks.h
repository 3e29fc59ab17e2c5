#pragma once
// What the workers foresee. Each slot has one standing outlook, and a new one replaces it. One that is not replaced for
// long is dropped, because its worker does something else. All of them are merged into wishes: one for each entry, in
// the order in which they are to be read.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "store/layout/table_layout.h"

namespace moestro::store {

/// An expert that a worker will probably use.
struct ForeseenEntry {
  uint32_t entry = 0;
  float probability = 0;  ///< 0 to 1
  Nanos due{0};           ///< from now
};

/// What one worker foresees (store::Outlook).
struct SlotOutlook {
  std::span<const ForeseenEntry> experts{};  ///< the most urgent first
  bool scan = false;
  bool leads = false;
};

/// An entry that at least one worker foresees.
struct Wish {
  uint32_t entry = 0;
  uint32_t order = 0;     ///< in which it was named, for scans
  float probability = 0;  ///< that at least one of them uses it
  float proximity = 0;    ///< 1: now, 0: the furthest due of its outlook
  double until = 0;       ///< passes until its next use, on average; a pass is the longest of the outlooks
  Nanos due{0};           ///< the earliest
  bool scan = true;       ///< only scans foresee it
  bool leads = false;     ///< a worker whose forecasts lead foresees it
  bool below_floor = false, over_budget = false, early = false, guarded = false;  ///< counted

  float priority() const { return probability * proximity; }
};

class Outlooks {
 public:
  /// An outlook stands for twice the time to its furthest due, and at least so long.
  static constexpr Nanos kStandsAtLeast = std::chrono::milliseconds(100);

  void resize(size_t entries) { wish_of_.resize(entries); }
  /// An outlook without experts is none.
  void replace(uint32_t slot, Nanos now, const SlotOutlook& outlook);
  void remove(uint32_t slot);
  /// Entries have got another meaning: the wishes have to be merged again.
  void entries_changed() { stale_ = stale_ || any(); }

  /// Whether merge() has something to do.
  bool stale(Nanos now) const { return stale_ || now > ends_; }
  /// `entry_of`: the entry that holds the bytes of a foreseen one; nullopt: none does.
  void merge(Nanos now, const std::function<std::optional<uint32_t>(uint32_t entry)>& entry_of);

  bool any() const { return slots_ > 0; }
  /// By probability times proximity. Those of scans come last, in the order in which they were named.
  std::span<Wish> wishes() { return wishes_; }
  std::span<const Wish> wishes() const { return wishes_; }
  /// The indices of wishes(), the earliest due first.
  std::span<const uint32_t> by_due() const { return by_due_; }
  const Wish* find(uint32_t entry) const {
    return wishes_.empty() || wish_of_[entry] == 0 ? nullptr : &wishes_[wish_of_[entry] - 1];
  }
  /// From now to the furthest due of all.
  Nanos horizon() const { return horizon_; }

 private:
  struct Standing {
    std::vector<ForeseenEntry> experts;  ///< empty: none stands
    Nanos since{0}, furthest{0};         ///< `furthest`: from `since`
    bool scan = false, leads = false;
  };
  void add(const Standing& outlook, const ForeseenEntry& expert, uint32_t entry);

  std::array<Standing, kWorkerSlotsMax> standing_;
  size_t slots_ = 0;  ///< that have an outlook
  bool stale_ = false;
  Nanos ends_ = Nanos::max();  ///< of the first outlook that is dropped
  std::vector<Wish> wishes_;
  std::vector<uint32_t> by_due_;
  std::vector<uint32_t> wish_of_;  ///< by entry: 1 + index of its wish; 0: none
  Nanos horizon_{0};
};

}  // namespace moestro::store
