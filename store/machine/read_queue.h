#pragma once
// Which wanted blob is read next. A blob leaves the queue when no slot wants it any more. What workers demand comes
// before what the store wants for itself. A worker's demands are ordered by (plan, MoE layer), then by arrival. Workers
// take turns, because their plan numbers cannot be compared. Reads ahead do not wait here (foresight.cc).

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "store/layout/table_layout.h"
#include "store/read_class.h"

namespace moestro::store {

/// The slot number for wants of the store itself.
inline constexpr uint32_t kStoreSlot = kWorkerSlotsMax;

class ReadQueue {
 public:
  struct Why {
    uint64_t plan = 0;
    uint32_t moe_layer = 0;
  };
  struct Next {
    uint32_t entry = 0;
    ReadClass read_class = ReadClass::kDemand;  ///< kScrub: only the store wants it
  };

  /// False if `slot` wanted `entry` before. `queued`: it waits to be read; otherwise it is already being read.
  bool want(uint32_t slot, uint32_t entry, Why why, bool queued);
  /// Drops everything that the slot wants.
  void forget(uint32_t slot);

  /// The next blob to read.
  std::optional<Next> next() const;
  /// A demand waits for room. It stays next until it is taken or no longer wanted, so that smaller ones do not overtake
  /// it forever.
  void hold(uint32_t entry) { head_ = entry; }
  /// It is being read now: it leaves the queue, and its wants stay.
  void taken(uint32_t entry);
  /// Its read was cancelled: it returns to the queue if it is still wanted.
  void queue_again(uint32_t entry);
  /// It has arrived or failed. Returns the workers' slots that demanded it, and drops all its wants.
  std::vector<uint32_t> ended(uint32_t entry);

  bool wanted(uint32_t entry) const { return items_.contains(entry); }
  bool demanded(uint32_t entry) const;
  /// Number of blobs that wait to be read, and of those that a worker demands.
  size_t queued() const;
  size_t queued_demands() const;

 private:
  using Place = std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>;  ///< plan, layer, arrival, entry
  struct Want {
    uint32_t slot = 0;
    Why why;
    uint64_t arrival = 0;
  };
  struct Item {
    bool queued = false;
    std::vector<Want> wants;  ///< never empty; one of a slot
  };

  static Place place_of(uint32_t entry, const Want& want);
  void enter(uint32_t entry, const Item& item);
  void leave(uint32_t entry, const Item& item);
  std::optional<uint32_t> slot_in_turn() const;

  std::array<std::set<Place>, kWorkerSlotsMax + 1> queues_;  ///< by slot
  std::unordered_map<uint32_t, Item> items_;
  std::optional<uint32_t> head_;
  uint32_t turn_ = 0;  ///< the worker's slot that is asked first
  uint64_t arrivals_ = 0;
};

}  // namespace moestro::store
