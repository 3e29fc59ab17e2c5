#pragma once
// Which blob is read next. Each worker's wants are ordered by (plan, layer), then by arrival; workers take turns, because their plan
// numbers say nothing about each other. A blob remembers every worker that wants it and leaves the queue with the last of them.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "store/layout/table_layout.h"

namespace moestro::store {

class DemandQueue {
 public:
  struct Why {
    uint64_t plan = 0;
    uint32_t moe_layer = 0;
  };

  /// `entry` is wanted by `slot`. False if it was already. `queued`: it waits to be read (else it is being read already).
  bool want(uint32_t slot, uint32_t entry, Why why, bool queued);
  /// Drops all that `slot` wants.
  void forget(uint32_t slot);

  /// The next blob to read.
  std::optional<uint32_t> next() const;
  /// It waits for room: it stays the next one until it is taken or unwanted, so that smaller ones do not pass it for ever.
  void hold(uint32_t entry) { head_ = entry; }
  /// It is being read now: out of the queue, its wants stay.
  void taken(uint32_t entry);
  /// It has arrived or failed: the slots that wanted it, and no longer do.
  std::vector<uint32_t> ended(uint32_t entry);

  bool wanted(uint32_t entry) const { return wants_.contains(entry); }
  size_t queued() const;

 private:
  using Place = std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>;  ///< plan, layer, arrival, entry
  std::array<std::set<Place>, kWorkerSlotsMax> queues_;
  std::unordered_map<uint32_t, std::map<uint32_t, Place>> wants_;  ///< entry -> slot -> its place in that slot's queue
  std::optional<uint32_t> head_;
  uint32_t turn_ = 0;  ///< the slot that is asked first
  uint64_t arrivals_ = 0;
};

}  // namespace moestro::store
