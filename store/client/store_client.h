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

/// Dense blobs are loaded and pinned once, in attach(), for the life of the client; leases on them cost nothing. Those
/// that are streamed() are pinned as experts are, up to a share of the places where they take turns.
/// Experts can be pinned up to this worker's share of the arena. Beyond it, try_pin returns nothing, and fetches wait
/// until leases are released.
///
/// If the store is killed, resident blobs can be pinned as before, and fetches wait for its successor. After
/// AttachOptions::store_wait each fetch ends with kIo, which names its blob and the store. If a successor adopts the
/// arena, every outstanding fetch is sent again. If the arena has ended (the store was shut down, or its successor
/// could not adopt it), fetch() returns kUnavailable and next_arrival() kIo from then on: destroy this client and
/// attach again.
class StoreClient final : public BlobSource {
 public:
  static Result<std::unique_ptr<StoreClient>> attach(const AttachOptions& options);
  /// For a slot that is already held. attach() also loads the dense weights.
  StoreClient(std::unique_ptr<Attachment> attachment, std::chrono::milliseconds store_wait);
  ~StoreClient() override;

  const Manifest& manifest() const override { return at_->manifest; }
  std::span<const std::byte> memory() const override { return {at_->arena.data(), at_->arena.size()}; }
  bool memory_is_writable() const override { return at_->arena.writable(); }
  Status forbid_writes() override { return at_->arena.forbid_writes(); }
  std::optional<Lease> try_pin(uint32_t blob, UseWeight weight = {}) override;
  Status fetch(std::span<const uint32_t> blobs, WantedBy why) override;
  Result<Lease> next_arrival(std::chrono::milliseconds timeout) override;
  std::optional<uint32_t> failed_blob() const override { return failed_blob_; }
  uint32_t finds(uint32_t blob) const override;
  uint64_t finds_of_all() const override;
  void cancel_fetches() override;
  Status foresee(const Outlook& outlook) override;
  Counters counters() const override { return counters_; }
  std::span<const uint32_t> streamed() const override { return at_->streamed; }
  bool ask_streamed(uint32_t blob, WantedBy why) override;
  Result<Lease> take_streamed(uint32_t blob, std::chrono::milliseconds timeout) override;
  uint32_t window_share() const { return at_->header().window_share[at_->slot].load(std::memory_order_relaxed); }

  enum class StoreState : uint8_t {
    kThere,
    kAway,  ///< killed; its successor may adopt the arena
    kOver,  ///< no store uses this arena any more
  };
  /// As of the last check.
  StoreState store_state() const { return state_; }
  /// Checks whether the store is alive, for a worker that has no outstanding fetch. kUnavailable once the state is
  /// kOver.
  Status check();
  /// How often a successor has continued with this client.
  uint64_t resumed() const { return resumed_; }
  uint32_t slot() const { return at_->slot; }
  uint64_t incarnation() const { return at_->incarnation; }
  uint64_t share_bytes() const { return share_->load(std::memory_order_relaxed); }
  /// How much of the share a pinned expert of this length takes.
  uint64_t pin_cost(uint64_t length) const { return std::max(length, pin_bytes_min_->load(std::memory_order_relaxed)); }

 private:
  enum class Use : uint8_t {
    kNone,
    kWaiting,   ///< requested by fetch(), but not pinned, because the share is used up
    kAsked,     ///< pinned as a request, and the store has been asked
    kStreamed,  ///< the same by ask_streamed()
    kLeased,
  };
  /// A wake-up can be lost with a store that dies at the wrong moment, so no wait is longer than this.
  static constexpr std::chrono::milliseconds kLook{50};
  static constexpr uint32_t kNoTwin = UINT32_MAX;
  /// What a hit needs to know of a blob, in half a cache line.
  struct alignas(32) BlobState {
    std::atomic<uint64_t>* pin = nullptr;  ///< this worker's word
    const TableEntry* entry = nullptr;
    uint64_t length = 0;
    Use use = Use::kNone;
    UseWeight weight;         ///< of the next pin
    bool dense : 1 = false;
    bool held : 1 = false;    ///< dense: stays pinned
    bool streamed : 1 = false;
    bool pinned : 1 = false;  ///< by this blob; the word stays set while a twin needs it
    uint8_t generation = 0;   ///< the last bits of that of its last lease
    uint32_t twin = kNoTwin;  ///< another blob of this model with the same entry; they form a ring
  };
  static_assert(sizeof(BlobState) == 32);

  /// The words of an entry, read in this order, so that a lease on a resident entry notices every later find.
  struct Seen {
    uint32_t finds = 0;  ///< how often its bytes had been found wrong
    Residency residency = Residency::kAbsent;
    uint8_t generation = 0;  ///< its last bits
    bool resident() const { return residency == Residency::kResident; }
  };
  static Seen see(const TableEntry& entry);
  Status load_dense(std::chrono::milliseconds timeout);
  void unpin(uint32_t blob) override;
  bool has(uint32_t blob) override;

  bool fits_share(const BlobState& state) const {
    if (state.streamed) return pinned_streamed_ < window_share();
    return state.dense || pinned_cost() + pin_cost(state.length) <= share_bytes();
  }
  /// If there is a minimum cost, it is that of the longest expert, so all experts cost the same.
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
  Result<Lease> fail_for_want_of_store(uint32_t blob);
  std::optional<Status> failure_of(uint32_t blob);
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
  PinsHeader* told_;  ///< this worker's use counts, which the store reads
  uint64_t pinned_bytes_ = 0, pinned_experts_ = 0;  ///< leased or requested
  Counters counters_;
  std::vector<WantedBy> why_;         ///< by blob: the reason of its fetch
  std::unordered_map<uint32_t, uint32_t> blob_of_entry_;
  std::deque<uint32_t> waiting_;      ///< kWaiting, oldest first
  std::vector<uint32_t> asked_;       ///< kAsked
  std::vector<uint32_t> asked_streamed_;  ///< kStreamed
  uint32_t pinned_streamed_ = 0;          ///< leased or asked for
  std::deque<uint32_t> ready_;        ///< blobs that were resident when they were requested
  std::unordered_map<uint32_t, Status> failures_;
  uint64_t completions_read_ = 0;
  StoreState state_ = StoreState::kThere;
  std::chrono::steady_clock::time_point away_since_{};
  /// When outstanding requests are repeated and the store is checked next, however short the calls of next_arrival are.
  std::chrono::steady_clock::time_point look_due_{};
  const std::chrono::milliseconds store_wait_;
  uint64_t epoch_ = 0;  ///< of the store that was last seen
  uint64_t resumed_ = 0;
  bool outlook_stands_ = false;  ///< the store has one from here
  std::optional<uint32_t> failed_blob_;  ///< blob of next_arrival's last error
};

}  // namespace moestro::store
