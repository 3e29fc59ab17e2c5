#pragma once
// The store's decisions: residency, queue, placement, eviction.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/status.h"
#include "common/tier/prefetch_rules.h"
#include "common/tier/waste_limit.h"
#include "store/layout/content_hash.h"
#include "store/layout/table_layout.h"
#include "store/machine/content_index.h"
#include "store/machine/drive_pace.h"
#include "store/machine/layer_window.h"
#include "store/machine/outlooks.h"
#include "store/machine/placement.h"
#include "store/machine/prefetch_ledger.h"
#include "store/machine/read_queue.h"
#include "store/machine/shared_state.h"
#include "store/machine/shares.h"
#include "store/machine/use_watch.h"

namespace moestro::store {

/// The value of an entry to the policy (CachePolicy::heat).
struct Warmth {
  uint32_t entry = 0;
  double heat = 0;
};

/// One entry of the table, from the packs.
struct MachineBlob {
  bool dense = false;  ///< has a permanent place, and is never evicted, unless it is streamed
  uint64_t length = 0;
  uint32_t format = 0;  ///< blob_format(): only blobs of one format can have the same content, so dense weights never
                        ///< share with experts
  ContentHash claim = {};  ///< from the checksums of its slices in the manifest; unknown: it cannot be matched before
                           ///< it is read
  bool streamed = false;   ///< dense, and takes turns with others in the places of the window (layer_window.h)
  bool stays() const { return dense && !streamed; }
};

struct Action {
  enum class Kind : uint8_t {
    kRead,     ///< read `entry` to [offset, offset + length) in `read_class`, from the pack of `source`; report it as
               ///< `load`
    kPromote,  ///< the load `load` of `entry` is demanded now
    kCancel,  ///< the load `load` of `entry` is no longer wanted: report it as kCancelled, unless it is complete by
              ///< then
    kNotify,  ///< tell worker `slot` that `entry` is resident, or failed with `outcome`
    kPoison,  ///< fill [offset, offset + length) with 0xFF, before any later action
    kCheck,   ///< compare the bytes of `entry` at `offset` with their checksums, before earlier kChecks; report it as
              ///< `load`
  } kind = Kind::kRead;
  uint32_t entry = 0;
  uint32_t source = 0;  ///< `entry`, or another entry with its content
  uint32_t slot = 0;
  Code outcome = Code::kOk;
  ReadClass read_class = ReadClass::kDemand;
  uint64_t offset = 0, length = 0, load = 0;
};
using Actions = std::vector<Action>;

class StoreMachine {
 public:
  struct Options {
    uint64_t arena_bytes = 0;
    uint64_t loading_bytes_max = 32ULL << 20;  ///< bytes of demands being read at once; at least one blob always is
    bool poison_freed = false;
    uint32_t entries_max = 0;  ///< of the table, so that packs can be added; 0: the number of blobs at start
    uint64_t segment_bytes = 0;  ///< 0: chosen for the blobs; a former store's, if its arena is to be adopted
    float ahead_floor = tier::kPrefetchFloor;  ///< probability below which nothing is read ahead by foresee()
    float ahead_waste_max = 0;  ///< share of the bytes read that may be wasted; above it, the floor rises; 1: any; 0:
                                ///< tier::waste_share()
    WindowShape window{};  ///< for the streamed blobs; a former store's, if its arena is to be adopted
  };
  struct Counters {
    uint64_t fetches = 0, joined = 0, loads = 0, evictions = 0, bad_blobs = 0;
    uint64_t reads_elsewhere = 0;  ///< reads that failed and were repeated from another pack with the same content
    uint64_t prefetches = 0;          ///< reads ahead that were begun
    uint64_t prefetches_late = 0;     ///< of them, demanded before they were complete
    uint64_t prefetches_dropped = 0;  ///< of them, cancelled: no longer foreseen, or a demand needed their room
    // Foreseen blobs that were not resident and not read ahead, each counted once an outlook.
    uint64_t below_floor = 0;         ///< not likely enough
    uint64_t over_budget = 0;         ///< the drive would not have brought it in time
    uint64_t early = 0;               ///< can wait, and so leave its room to what is in it
    uint64_t guarded = 0;             ///< everything else is used sooner, or pinned
    uint64_t segments_emptied = 0;    ///< to make room for blobs of another length
    uint64_t scrub_mismatches = 0;    ///< blobs read again because their bytes had changed in memory
    uint64_t streamed = 0, streamed_bytes = 0;  ///< dense weights that were read into the window
    uint64_t adopted = 0, adopted_bytes = 0,
             damaged = 0;  ///< blobs adopted from a former store; of them, those whose bytes had changed
  };
  /// An entry in the table of a killed store.
  struct Former {
    uint8_t state = 0;  ///< Residency, but it may be any number
    uint64_t generation = 0, offset = 0;
    ContentHash content;    ///< if it was ever known
    uint32_t alias = 0;     ///< 1 + the entry whose bytes it shares
    uint64_t last_use = 0;  ///< newest stamp
  };

  /// The smallest arena for these blobs: all dense ones that stay, and room for one expert of the largest kind.
  static uint64_t arena_bytes_min(const std::vector<MachineBlob>& blobs);
  /// The size of an arena that holds all of them.
  static uint64_t arena_bytes_max(const std::vector<MachineBlob>& blobs);

  /// kExhausted, with the numbers, if the arena is smaller than arena_bytes_min().
  static Result<std::unique_ptr<StoreMachine>> create(Options options, std::vector<MachineBlob> blobs,
                                                      std::unique_ptr<policy::CachePolicy> policy, SharedState& shared);

  /// Takes over what a former store left. Call it before anything else. What was RESIDENT becomes kAdopted, and a
  /// kCheck of it is returned, the hottest last. What was being read or evicted becomes free, unless it is still
  /// pinned. kCorrupt says what is inconsistent; shared memory is then unchanged, and this machine cannot be used.
  /// store/machine/adoption.cc has the argument.
  Result<Actions> adopt(const std::vector<Former>& former);
  /// The resident entries: dense weights that stay, then experts, hottest first by the policy's measure, then aliases.
  std::vector<Warmth> by_heat();
  /// Takes by_heat() of a former store: the policy treats these entries as hot as they were. Nothing is read.
  void remember(std::span<const Warmth> hottest_first);
  /// Reads those of the entries that are held absent, in this order, after everything that a worker wants. Nothing is
  /// evicted for them. An entry without room is no longer wanted().
  Actions warm(const std::vector<uint32_t>& entries);
  bool wanted(uint32_t entry) const { return queue_.wanted(contents_.resolve(entry)); }
  /// The result of a kCheck. A damaged blob is read again into its place (store/machine/failed_loads.cc).
  Actions checked(uint32_t entry, uint64_t check, bool right);
  /// Before adopt(): live workers keep their shares until adoption is done.
  void hold_shares() { shares_held_ = true; }
  /// A live worker that was attached to the former store, which granted its reserve.
  void attached(uint32_t slot, uint64_t reserve, uint32_t model = 0);

  /// A worker whose largest expert has `reserve` bytes. Refused (kExhausted) if the reserves of all workers no longer
  /// fit together, or if the window has no place for it. `model`: whose share it uses.
  Status attach(uint32_t slot, uint64_t reserve, const std::string& name, uint32_t model = 0);
  /// What each model is guaranteed and may have; unbounded until this is called.
  void set_model_share(uint32_t model, ModelShare share);
  /// Entries [first, first + count) are blobs of these models.
  void set_owners(uint32_t first, uint32_t count, ModelMask owners);
  uint64_t model_bytes(uint32_t model) const { return shares_.used(model); }
  const ModelShare& model_share(uint32_t model) const { return shares_.bounds(model); }
  /// A worker is gone and its pins have been cleared: drops its wants and its reserve.
  Actions gone(uint32_t slot);
  Actions fetch(uint32_t slot, ReadQueue::Why why, const std::vector<uint32_t>& entries);
  /// A worker attaches for these entries. Those whose content is already in the store, from another pack, become
  /// aliases and are not read again.
  Actions share_known(uint32_t first, uint32_t count);
  /// Withdraws the demands of a worker; its outlook stays.
  Actions cancel(uint32_t slot);
  /// The time of the events that follow, from any monotonic clock. Reads ahead have a budget and patience only where
  /// this is called.
  void at(Nanos now);
  /// Replaces what the worker foresaw before (store/machine/foresight.cc). What is read ahead is not announced and not
  /// pinned.
  Actions foresee(uint32_t slot, const SlotOutlook& outlook);
  /// When a read ahead that waits will be due: call poll() then. nullopt: none waits.
  std::optional<Nanos> look_again() const { return look_again_; }
  /// The least probability that the limit on waste lets be read ahead now.
  float ahead_floor() const { return waste_.floor(); }
  /// Of one read of a drive, which a demand waits for. 0, until this is called: for nothing.
  void set_read_bytes(uint64_t bytes) { read_bytes_ = bytes; }
  /// `carried`: bytes that the drives have read for it, if it failed or was cancelled.
  Actions read_done(uint32_t entry, uint64_t load, const Status& status, const ContentHash& content,
                    uint64_t carried = 0);
  /// Assigns these blobs to the free entries [first, first + blobs.size()). kExhausted, with the numbers, if their
  /// dense weights would leave no room for the experts of the attached workers.
  Status add_entries(uint32_t first, const std::vector<MachineBlob>& blobs);
  /// No worker is attached for these entries any more. Each is forgotten as soon as it is not being read and no other
  /// entry shares its bytes.
  Actions remove_entries(uint32_t first, uint32_t count);
  /// True if all of them are forgotten and nothing is being read from their pack, so that they may be assigned to other
  /// blobs.
  bool entries_free(uint32_t first, uint32_t count) const;
  /// Their pack has been repaired: bad blobs may be read again at once.
  Actions mend_entries(uint32_t first, uint32_t count);
  /// True if removed entries, or places under leases, wait for something that is not reported. Call poll() from time to
  /// time.
  bool sweeping() const { return sweep_again_ || !held_.empty(); }
  /// The bytes of a resident blob have changed. It is not leased any more and is read again at once in place, even if
  /// it is pinned (store/machine/failed_loads.cc).
  Actions found_wrong(uint32_t entry);
  /// Reads some of the workers' pin words. Call it often enough that every word is read before its count wraps around.
  void look_around();
  /// Reads all of them, before a worker's words are removed with it.
  void look_at_all();
  /// Something may have been unpinned. Call it from time to time while blocked().
  Actions poll();

  /// True if a blob waits for room that only unpinning can make. Workers unpin without a message.
  bool blocked() const { return blocked_; }
  const Counters& counters() const { return counters_; }
  /// What became of blobs read ahead. Reads the workers' words first, because a hit sends no message.
  const PrefetchLedger::Counters& prefetch_counters();
  uint64_t used_bytes() const { return placement_.used_bytes(); }
  uint64_t segment_bytes() const { return placement_.segments().segment_bytes(); }
  Residency state(uint32_t entry) const { return entries_[entry].state; }
  uint64_t generation(uint32_t entry) const { return entries_[entry].generation; }
  uint64_t offset(uint32_t entry) const { return entries_[entry].offset; }
  /// Whether it has a place at offset(), even if its bytes are not there yet.
  bool has_place(uint32_t entry) const { return entries_[entry].placed; }
  uint32_t entries() const { return static_cast<uint32_t>(entries_.size()); }
  /// Offset of `length` bytes of the arena that are free now; they stay free.
  std::optional<uint64_t> free_range(uint64_t length) const { return placement_.free_range(length); }
  /// The entry that holds the bytes of this one: itself, unless it is an alias.
  uint32_t resolve(uint32_t entry) const { return contents_.resolve(entry); }
  uint64_t resident_bytes() const;
  size_t aliases() const { return contents_.aliases(); }
  const WindowShape& window() const { return window_.shape(); }
  const Status& failure(uint32_t entry) const { return entries_[entry].failure; }
  std::string_view policy() const { return policy_->name(); }
  /// Wanted blobs that wait to be read.
  size_t queued() const { return queue_.queued(); }
  /// The same by class; kPrefetch: foreseen blobs that wait only for the drives.
  size_t queued(ReadClass read_class) const;
  size_t loading(ReadClass read_class) const { return loading_[static_cast<size_t>(read_class)]; }
  size_t loading() const { return loading_[0] + loading_[1] + loading_[2]; }
  size_t unchecked() const { return unchecked_; }  ///< entries that are kAdopted
  size_t unreadable() const;  ///< entries that failed_before()
  /// Entries that had failed_before() and have their bytes now, read from their own pack or an equal one. Each is
  /// returned once.
  std::vector<uint32_t> take_readable_again() { return std::exchange(readable_again_, {}); }
  /// It could not be read when that was last tried.
  bool failed_before(uint32_t entry) const { return entries_[entry].pause > Nanos(0); }
  uint64_t expert_bytes() const { return expert_bytes_; }
  /// For tests: what is wrong with the bookkeeping of reads ahead; empty if nothing is.
  std::string inconsistency() const;

 private:
  struct Entry {
    MachineBlob blob;
    Residency state = Residency::kAbsent;
    uint64_t generation = 0;
    uint64_t offset = 0;
    uint64_t load = 0;
    bool used = false;    ///< belongs to a blob of a pack
    bool going = false;   ///< its pack has been removed; it stays while others share its bytes
    ModelMask owners = 0;   ///< the models of its own pack
    ModelMask charged = 0;  ///< those that its bytes count for, while it has a place
    bool placed = false;    ///< [offset, offset + length) is its own
    bool leased = false;  ///< leases may be reading it: it was RESIDENT after it was last seen without pins
    bool held = false;    ///< kBad, and keeps its place until the last of these leases is gone
    uint32_t source = 0;  ///< the holder that the current load reads from, or the last one
    std::vector<uint32_t> tried;  ///< holders from which the current load could not be read
    ReadClass read_class = ReadClass::kDemand;  ///< of the load
    bool ahead = false;    ///< read ahead, or being read ahead, by foresight; not used since, and still foreseen
    bool scanned = false;  ///< read ahead for a scan, and used by no whole token since
    Nanos due{0};          ///< while `ahead`: of its wish
    Status failure;
    Nanos pause{0}, again{0};  ///< after `failure`: how long it is left alone, and until when; 0: it could be read
  };
  static MachineBlob kind_of(const MachineBlob& blob);
  StoreMachine(Options options, std::vector<MachineBlob> blobs, std::unique_ptr<policy::CachePolicy> policy,
               SharedState& shared);
  void place_dense();
  void schedule(Actions& actions);
  bool may_begin(const MachineBlob& blob, ReadClass read_class) const;
  void begin(uint32_t index, ReadClass read_class, Actions& actions);
  void read_where_it_lies(uint32_t index, Actions& actions);
  void failed(uint32_t index, const Status& why, Actions& actions);
  void try_again(uint32_t index, Actions& actions);
  bool under_leases(uint32_t index);
  void can_be_read(uint32_t entry);
  void leave_place(uint32_t index, Actions& actions);
  void leave_held_places(Actions& actions);
  ContentHash content_of(uint32_t index) const;
  void promote(uint32_t index, Actions& actions);
  Actions given_up(uint32_t index, uint64_t carried);
  void no_longer_loading(const Entry& entry);
  void give_up(uint32_t index, Actions& actions);
  size_t ahead_to_read() const;
  /// What room is made for.
  struct RoomFor {
    uint32_t entry = 0;
    ReadClass read_class = ReadClass::kDemand;
    const Wish* wish = nullptr;  ///< that is read ahead
  };
  enum class Sparing : uint8_t {
    kShares,
    kRoomElsewhere
  };  ///< what limits eviction: models' shares, or room elsewhere for the evicted entries
  std::optional<uint64_t> make_room(const RoomFor& what, Actions& actions);
  std::optional<uint64_t> place(uint32_t entry);
  bool claim(uint32_t entry, uint64_t offset);
  void free_place(uint32_t entry, uint64_t offset);
  // window.cc
  std::optional<uint64_t> room_in_window(ReadClass read_class, Actions& actions);
  bool evict_from_window(Actions& actions);
  void wait_for_window(uint32_t entry);
  void queue_for_window();
  void share_window();
  uint32_t attached_workers() const;
  bool evict_for(const RoomFor& what, const Shares::Eviction& why, Actions& actions);
  bool another_segment_is_colder(uint32_t entry, const Shares::Eviction& why, Actions& actions);
  bool empty_segments(uint32_t entry, const Shares::Eviction& why, double limit, Sparing sparing, Actions& actions);
  std::optional<double> heat_of(std::span<const SegmentAllocator::Occupant> there);
  bool may_go(std::span<const SegmentAllocator::Occupant> there, const Shares::Eviction& why, Sparing sparing);
  bool press_together(uint32_t entry, const Shares::Eviction& why, Actions& actions);
  std::optional<uint32_t> coldest(std::span<const uint32_t> groups, const Shares::Eviction& why);
  void evicted(uint32_t entry, Actions& actions);
  uint32_t group_of(uint64_t length);
  void note_arrival(uint32_t entry);
  void look_at(uint32_t entry);
  void note_adopted(uint32_t entry);
  bool evict_one(const policy::Wanted& wanted, const RoomFor& what, const Shares::Eviction& why, Actions& actions);
  struct Search {
    const Wish* ahead = nullptr;   ///< what the room is for; nullptr: a demand
    uint64_t looks_max = 0;        ///< foreseen entries after which the search ends
    bool cut_short = false;
    std::vector<uint32_t> later{};     ///< may go, but are foreseen
    std::vector<uint32_t> promised{};  ///< read ahead, and still to be used: last of all
  };
  std::optional<uint32_t> find_victim(const policy::Wanted& wanted, const Shares::Eviction& why, Search& search);
  std::optional<uint32_t> passed_scan(const policy::Wanted& wanted, const Shares::Eviction& why);
  std::optional<policy::Use> news_of(uint32_t entry);
  void count_waste(uint32_t entry);
  void merge_outlooks(Actions& actions);
  bool stands(uint32_t entry);
  void begin_ahead(Wish& wish, uint64_t offset, Actions& actions);
  /// How far one call of schedule() has looked at the wishes.
  struct AheadTurn {
    size_t next = 0;         ///< wish
    uint32_t searches = 0;   ///< for room, in vain
  };
  bool next_ahead(AheadTurn& turn, Actions& actions);
  std::optional<uint64_t> free_room(uint32_t entry);
  bool in_budget(const Wish& wish);
  bool likely_enough(const Wish& wish) const;
  bool may_wait(const Wish& wish);
  bool scan_is_full(uint64_t length) const;
  void give_up_ahead(Actions& actions);
  void no_longer_ahead(uint32_t entry);
  void set_waste_share();
  bool try_evict(uint32_t entry);
  void set_state(uint32_t entry, Residency state);
  void landed(uint32_t entry, const ContentHash& content);
  void tell(uint32_t entry, Code outcome, Actions& actions);
  void give_back(uint32_t entry, Actions& actions);
  void sweep(Actions& actions);
  void try_forget(uint32_t entry, Actions& actions);
  void stands_for_nothing(uint32_t entry);
  std::vector<uint32_t> sources(uint32_t entry) const;
  std::optional<uint32_t> next_source(uint32_t entry) const;
  void read_from(uint32_t source, uint32_t entry, Actions& actions);
  bool read_elsewhere(uint32_t entry, Actions& actions);
  void note_claim(uint32_t entry, uint32_t source);
  void forget_claim(uint32_t entry);
  std::optional<uint32_t> known_equal(uint32_t entry) const;
  bool share_unread(uint32_t entry, Actions& actions);
  void needs_no_place(uint32_t entry);
  void become_alias(uint32_t entry, uint32_t first, const ContentHash& content, Actions& actions);
  Status claim_former(const std::vector<Former>& former, std::vector<bool>& kept);
  Status learn_former(const std::vector<Former>& former);
  Status claim_range(uint32_t entry, const Former& found);
  void publish_former(uint32_t entry, const Former& found, bool kept, Actions& actions);
  Action check_of(uint32_t entry) const;
  void share_out();
  std::set<uint64_t> expert_lengths() const;
  struct PinSplit {
    uint64_t each = 0;  ///< what a pin counts at least
    std::array<uint64_t, kWorkerSlotsMax> of_slot{};
    Status fits{};
  };
  std::vector<PinGroup> pin_groups(uint64_t each, std::vector<std::vector<uint32_t>>& slots) const;
  void count_in_blocks(PinGroup& group, uint64_t each, const std::set<uint64_t>& lengths) const;
  PinSplit split_pins(const std::vector<MachineBlob>& more = {}) const;
  ModelMask owners_of(uint32_t entry) const;
  void charge(uint32_t entry);
  void discharge(uint32_t entry);
  void charge_anew();

  const Options options_;
  SharedState& shared_;
  Placement placement_;
  LayerWindow window_;
  std::vector<Entry> entries_;
  std::unique_ptr<policy::CachePolicy> policy_;
  std::map<uint64_t, uint32_t> groups_;   ///< of the policy, by rounded length
  std::vector<uint32_t> all_groups_;
  std::vector<uint32_t> looks_wait_;      ///< by group: evictions until all segments are checked again
  UseWatch watch_;
  uint32_t looked_ = 0;  ///< the next entry of look_around()
  std::unordered_map<uint32_t, double>
      remembered_;  ///< last use of absent entries, for the policy
  ReadQueue queue_;
  PrefetchLedger prefetched_;
  DrivePace pace_;
  Outlooks outlooks_;
  tier::WasteLimit waste_;
  uint64_t read_bytes_ = 0;
  std::vector<uint32_t> ahead_;          ///< entries that are `ahead`, and some that no longer are
  std::vector<uint32_t> reading_ahead_;  ///< of them, those being read as such, and some that no longer are
  std::vector<uint32_t> scanned_;        ///< entries that are, and some that no longer are
  uint64_t scanned_bytes_ = 0;           ///< of those that are
  std::vector<double> due_bytes_;        ///< along Outlooks::by_due(): bytes that are probably still to be read by
                                         ///< then; empty: not counted
  std::optional<Nanos> look_again_;
  ContentIndex contents_;
  std::map<ContentKey, uint32_t> claims_;  ///< manifest checksums that were verified by reading: the first entry with
                                           ///< these bytes
  struct WorkerNeed {
    uint64_t reserve = 0;
    uint32_t model = 0;
  };
  std::array<std::optional<WorkerNeed>, kWorkerSlotsMax> workers_;
  bool shares_held_ = false;  ///< nothing is written to the workers' shares
  Shares shares_;
  uint64_t expert_bytes_ = 0;
  std::array<uint64_t, kReadClasses> loading_bytes_{};
  std::array<size_t, kReadClasses> loading_{};
  uint64_t loads_begun_ = 0;
  size_t unchecked_ = 0;
  size_t loading_streamed_ = 0;  ///< of loading_ and loading_bytes_, for the window, whose places are their limit
  uint64_t loading_streamed_bytes_ = 0;
  std::vector<uint32_t> window_waits_;  ///< demanded, and taken off the queue until a place of the window may be free
  bool blocked_ = false;
  bool sweep_again_ = false;
  std::vector<uint32_t> held_;  ///< entries that are
  std::vector<uint32_t> readable_again_;
  Counters counters_;
};

}  // namespace moestro::store
