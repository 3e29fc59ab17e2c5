#pragma once
// Which blob is read next. Each blob has a set of wants: (worker slot, class, plan, MoE layer). It leaves the queue
// with the last of them. Demands come before prefetches, and those before the store's own reads. Within a class, each
// worker's wants are ordered by (plan, rank), then by arrival. The rank is the MoE layer unless the worker sets
// another, because the next token's first layers are needed later. Workers take turns, because their plan numbers
// cannot be compared.

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "store/layout/table_layout.h"
#include "store/read_class.h"

namespace moestro::store {

/// The slot number for wants of the store itself.
inline constexpr uint32_t kStoreSlot = kWorkerSlotsMax;

/// The new rank of the prefetches of one MoE layer.
struct LayerRank {
  static constexpr uint32_t kDrop = UINT32_MAX;
  uint32_t moe_layer = 0;
  uint32_t rank = 0;  ///< lower is sooner, within its plan; kDrop: not wanted any more
};

class ReadQueue {
 public:
  struct Why {
    uint64_t plan = 0;
    uint32_t moe_layer = 0;
  };
  struct Next {
    uint32_t entry = 0;
    ReadClass read_class = ReadClass::kDemand;
  };

  /// A worker wants one blob for only a few plans at once. More than this are not kept separately, whatever a client
  /// sends.
  static constexpr size_t kWantsMax = 16;

  /// False if `slot` wanted `entry` in this class before. `queued`: it waits to be read; otherwise it is already being
  /// read.
  bool want(uint32_t slot, uint32_t entry, Why why, ReadClass read_class, bool queued);
  /// These return the blobs that are no longer wanted.
  std::vector<uint32_t> forget(uint32_t slot);            ///< drops everything that the slot wants
  std::vector<uint32_t> withdraw_demands(uint32_t slot);  ///< its prefetches stay
  /// Prefetches of `slot` for plans up to `plan_max`, by layer.
  std::vector<uint32_t> steer(uint32_t slot, uint64_t plan_max, std::span<const LayerRank> layers);

  /// The next blob to read.
  std::optional<Next> next() const;
  /// A demand waits for room. It stays next until it is taken or no longer wanted, so that smaller ones do not overtake
  /// it forever.
  void hold(uint32_t entry) { head_ = entry; }
  /// It is being read now: it leaves the queue, and its wants stay.
  void taken(uint32_t entry);
  /// Its read was cancelled: it returns to the queue if it is still wanted.
  void queue_again(uint32_t entry);
  /// It has arrived or failed. Returns the slots that demanded it, and drops all its wants.
  std::vector<uint32_t> ended(uint32_t entry);

  bool wanted(uint32_t entry) const { return items_.contains(entry); }
  bool demanded(uint32_t entry) const;
  /// Number of blobs of one class that wait to be read. A blob wanted in several classes counts in the most urgent.
  size_t queued(ReadClass read_class) const;
  size_t queued() const;

 private:
  using Place = std::tuple<uint64_t, uint32_t, uint64_t, uint32_t>;  ///< plan, rank, arrival, entry
  struct Want {
    uint32_t slot = 0;
    ReadClass read_class = ReadClass::kDemand;
    uint64_t plan = 0;
    uint32_t moe_layer = 0, rank = 0;
    uint64_t arrival = 0;
  };
  struct Item {
    bool queued = false;
    std::vector<Want> wants;  ///< never empty
  };
  static constexpr size_t kSlots = kWorkerSlotsMax + 1;

  void enter(uint32_t entry, const Item& item);
  void leave(uint32_t entry, const Item& item);
  /// Changes the wants that `change` accepts; it returns true to erase one.
  template <typename Change>
  std::vector<uint32_t> revise(Change change);

  std::array<std::array<std::set<Place>, kSlots>, kReadClasses> queues_;
  std::unordered_map<uint32_t, Item> items_;
  std::optional<uint32_t> head_;
  std::array<uint32_t, kReadClasses> turn_{};  ///< the slot that is asked first
  uint64_t arrivals_ = 0;
};

}  // namespace moestro::store
