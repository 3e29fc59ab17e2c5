#pragma once
// Weights from a running store.

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "store/blob_source.h"
#include "store/client/attach.h"

namespace moestro::store {

/// Dense blobs are loaded and pinned once, in attach(), for as long as the client lives; leases on them cost nothing.
/// Experts are pinned up to this worker's share of the arena: beyond it try_pin gives nothing, and fetches wait until
/// leases are released.
///
/// When the store is killed, what is resident can be pinned as before, and fetches wait for its successor, at most
/// AttachOptions::store_wait after it was missed: then each ends with kIo, naming its blob and the store. A successor
/// that adopts the arena goes on where the dead one stopped: every outstanding fetch is sent again. When the arena is
/// over for good (the store has shut down, or its successor could not adopt it) fetch() is kUnavailable and
/// next_arrival() kIo, and so for good: destroy this client, then attach anew.
class StoreClient final : public BlobSource {
 public:
  static Result<std::unique_ptr<StoreClient>> attach(const AttachOptions& options);
  /// Over a slot that is held already. attach() also has the dense weights there.
  StoreClient(std::unique_ptr<Attachment> attachment, std::chrono::milliseconds store_wait);
  ~StoreClient() override;

  const Manifest& manifest() const override { return at_->manifest; }
  std::span<const std::byte> memory() const override { return {at_->arena.data(), at_->arena.size()}; }
  std::optional<Lease> try_pin(uint32_t blob, UseWeight weight = {}) override;
  Status fetch(std::span<const uint32_t> blobs, WantedBy why) override;
  Result<Lease> next_arrival(std::chrono::milliseconds timeout) override;
  std::optional<uint32_t> failed_blob() const override { return failed_blob_; }
  uint32_t finds(uint32_t blob) const override;
  void cancel_fetches() override;
  Status prefetch(std::span<const uint32_t> blobs, WantedBy why) override;
  Status steer_prefetches(PlanId plan_max, std::span<const PrefetchRank> layers) override;
  Counters counters() const override { return counters_; }

  enum class StoreState : uint8_t {
    kThere,
    kAway,  ///< killed; its successor may adopt the arena
    kOver,  ///< this arena is no store's any more
  };
  /// As of the last look.
  StoreState store_state() const { return state_; }
  /// Looks whether the store is still there: for a worker that has no fetch outstanding. kUnavailable once it is kOver.
  Status check();
  /// How often a successor has gone on with this client.
  uint64_t resumed() const { return resumed_; }
  uint32_t slot() const { return at_->slot; }
  uint64_t incarnation() const { return at_->incarnation; }
  uint64_t share_bytes() const { return share_->load(std::memory_order_relaxed); }
  /// What a pinned expert of this length takes of the share.
  uint64_t pin_cost(uint64_t length) const { return std::max(length, pin_bytes_min_->load(std::memory_order_relaxed)); }

 private:
  enum class Use : uint8_t {
    kNone,
    kWaiting,   ///< fetch() asked for it; not pinned, for want of share
    kAsked,     ///< pinned as intent, the store has been asked
    kLeased,
  };
  static constexpr uint32_t kNoTwin = UINT32_MAX;
  /// What a hit needs of a blob, in one half of a cache line.
  struct alignas(32) BlobState {
    std::atomic<uint64_t>* pin = nullptr;  ///< this worker's word
    const TableEntry* entry = nullptr;
    uint64_t length = 0;
    Use use = Use::kNone;
    UseWeight weight;         ///< of the next pin
    bool dense : 1 = false;
    bool held : 1 = false;    ///< dense: stays pinned
    bool pinned : 1 = false;  ///< by this blob; the word stays set while a twin needs it
    uint32_t twin = kNoTwin;  ///< another blob of this model with the same entry; they form a ring
  };
  static_assert(sizeof(BlobState) == 32);

  /// Of an entry, in this order: who sees it resident is told of every later find.
  struct Seen {
    uint32_t finds = 0;  ///< how often its bytes had been found wrong
    Residency residency = Residency::kAbsent;
    bool resident() const { return residency == Residency::kResident; }
  };
  static Seen see(const TableEntry& entry);
  Status load_dense(std::chrono::milliseconds timeout);
  void unpin(uint32_t blob) override;

  bool fits_share(const BlobState& state) const {
    return state.dense || pinned_cost() + pin_cost(state.length) <= share_bytes();
  }
  /// All experts count alike where there is a least cost: it is that of the longest.
  uint64_t pinned_cost() const {
    return std::max(pinned_bytes_, pinned_experts_ * pin_bytes_min_->load(std::memory_order_relaxed));
  }
  std::optional<Seen> pin_if_resident(BlobState& state);
  Seen follow(BlobState& state);
  void join_twins(uint32_t blob, uint32_t entry);
  bool twin_pinned(const BlobState& state) const;
  void set_pin(BlobState& state);
  void clear_pin(BlobState& state);
  void let_go(BlobState& state);
  Lease lease(uint32_t blob, const Seen& seen);
  void activate_waiting();
  Status ask(const std::vector<uint32_t>& blobs, WantedBy why);
  std::optional<Result<Lease>> collect();
  std::optional<Result<Lease>> look_at(uint32_t blob);
  Result<Lease> fail_one();
  Result<Lease> fail_for_want_of_store();
  void look_at_store();
  bool waited_long_enough() const {
    return state_ == StoreState::kAway && std::chrono::steady_clock::now() - away_since_ >= store_wait_;
  }
  void read_messages();
  void ask_again();
  void drop(uint32_t blob);

  std::unique_ptr<Attachment> at_;
  std::vector<BlobState> blobs_;
  const std::byte* arena_;
  const std::atomic<uint64_t>* share_;
  const std::atomic<uint64_t>* pin_bytes_min_;
  PinsHeader* told_;  ///< what the store reads of this worker's uses
  uint64_t pinned_bytes_ = 0, pinned_experts_ = 0;  ///< leased or asked
  Counters counters_;
  std::vector<WantedBy> why_;         ///< by blob: of its fetch
  std::unordered_map<uint32_t, uint32_t> blob_of_entry_;
  std::deque<uint32_t> waiting_;      ///< kWaiting, oldest first
  std::vector<uint32_t> asked_;       ///< kAsked
  std::deque<uint32_t> ready_;        ///< blobs to look at: they were resident when asked for
  std::unordered_map<uint32_t, Status> failures_;
  uint64_t completions_read_ = 0;
  StoreState state_ = StoreState::kThere;
  std::chrono::steady_clock::time_point away_since_{};
  /// When what was asked for is asked for again, and the store looked at: however short the calls of next_arrival are.
  std::chrono::steady_clock::time_point look_due_{};
  const std::chrono::milliseconds store_wait_;
  uint64_t epoch_ = 0;  ///< of the store that was last seen there
  uint64_t resumed_ = 0;
  std::optional<uint32_t> failed_blob_;  ///< that next_arrival's last error was about
};

}  // namespace moestro::store
