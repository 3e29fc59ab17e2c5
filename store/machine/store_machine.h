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
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/status.h"
#include "store/layout/content_hash.h"
#include "store/layout/table_layout.h"
#include "store/machine/content_index.h"
#include "store/machine/placement.h"
#include "store/machine/prefetch_ledger.h"
#include "store/machine/read_queue.h"
#include "store/machine/shared_state.h"
#include "store/machine/shares.h"
#include "store/machine/use_watch.h"

namespace moestro::store {

/// How much an entry is worth to the policy (CachePolicy::heat).
struct Warmth {
  uint32_t entry = 0;
  double heat = 0;
};

/// One entry of the table, as known from the packs.
struct MachineBlob {
  bool dense = false;  ///< has a place of its own for good, and is never evicted
  uint64_t length = 0;
  uint32_t format = 0;  ///< blob_format(): only blobs of one format can have the same content; dense weights never have
                        ///< that of experts
  ContentHash claim = {};  ///< of the checksums that its manifest gives for its slices; unknown: nothing is known to be
                           ///< equal to it unread
};

struct Action {
  enum class Kind : uint8_t {
    kRead,     ///< read `entry` to [offset, offset + length) in `read_class`, from where the pack of `source` has it;
               ///< report it as `load`
    kPromote,  ///< the load `load` of `entry` is demanded now
    kCancel,  ///< nobody wants the load `load` of `entry` any more: report it as kCancelled, unless it is whole by then
    kNotify,  ///< tell worker `slot` that `entry` is resident, or failed with `outcome`
    kPoison,  ///< fill [offset, offset + length) with 0xFF, before any later action
    kCheck,   ///< compare the bytes of `entry` at `offset` with what they must be, before those of earlier kChecks;
              ///< report it as `load`
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
    uint64_t loading_bytes_max = 32ULL << 20;  ///< demands begun at once; at least one blob always is
    bool poison_freed = false;
    uint32_t entries_max = 0;  ///< of the table, so that packs can be added; 0: as many as there are blobs at start
    uint64_t segment_bytes = 0;  ///< 0: chosen for the blobs; a former store's, if its arena is to be adopted
  };
  struct Counters {
    uint64_t fetches = 0, joined = 0, loads = 0, evictions = 0, bad_blobs = 0;
    uint64_t reads_elsewhere = 0;  ///< reads that failed and were tried in another pack with the same content
    uint64_t prefetches = 0;          ///< blobs that a worker asked to have read ahead, and that were not there
    uint64_t prefetch_loads = 0;      ///< of them, reads begun as a prefetch
    uint64_t prefetches_late = 0;     ///< of these, demanded before they were whole
    uint64_t prefetches_dropped = 0;  ///< taken back by their worker before they were whole, or without room
    uint64_t prefetches_refused = 0;  ///< of the latter, because all that could have gone was hotter
    uint64_t segments_emptied = 0;    ///< so that blobs of another length could lie there
    uint64_t scrub_mismatches = 0;    ///< blobs read again because their bytes had changed in memory
    uint64_t adopted = 0, adopted_bytes = 0,
             damaged = 0;  ///< blobs that a former store left; of them, those whose bytes had changed
  };
  /// What the table of a store that was killed says of an entry.
  struct Former {
    uint8_t state = 0;  ///< Residency, but any number can stand there
    uint64_t generation = 0, offset = 0;
    ContentHash content;    ///< as far as it was ever known
    uint32_t alias = 0;     ///< 1 + the entry whose bytes it shares
    uint64_t last_use = 0;  ///< newest stamp
  };

  /// The smallest arena for these blobs: all dense ones, and room for one expert of the largest kind.
  static uint64_t arena_bytes_min(const std::vector<MachineBlob>& blobs);
  /// One that holds all of them.
  static uint64_t arena_bytes_max(const std::vector<MachineBlob>& blobs);

  /// kExhausted, with the numbers, if the arena is smaller than that.
  static Result<std::unique_ptr<StoreMachine>> create(Options options, std::vector<MachineBlob> blobs,
                                                      std::unique_ptr<policy::CachePolicy> policy, SharedState& shared);

  /// Takes over what a former store left, before anything else is done: what was RESIDENT becomes kAdopted, and a
  /// kCheck of it comes back, the hottest last; what was being read or evicted is free, unless it is pinned still.
  /// kCorrupt: says what cannot be true, and nothing is changed in shared memory; this machine is then of no use.
  /// store/machine/adoption.cc has the argument.
  Result<Actions> adopt(const std::vector<Former>& former);
  /// What is there: dense weights, then experts, the hottest first by the policy's measure, then entries whose bytes
  /// another one holds.
  std::vector<Warmth> by_heat();
  /// What a former store said by_heat(): the policy takes these for as hot as they were. Nothing is read.
  void remember(std::span<const Warmth> hottest_first);
  /// Has what is absent of these read, in this order, behind everything that a worker wants; nothing is evicted for it.
  /// One that finds no room is not wanted() any more.
  Actions warm(const std::vector<uint32_t>& entries);
  bool wanted(uint32_t entry) const { return queue_.wanted(contents_.resolve(entry)); }
  /// How a kCheck ended. A blob that is not what it should be is read again, into its place
  /// (store/machine/failed_loads.cc).
  Actions checked(uint32_t entry, uint64_t check, bool right);
  /// Before adopt(): live workers keep the shares that they have until it is done.
  void hold_shares() { shares_held_ = true; }
  /// A worker that was attached to the former store and lives: its reserve was granted then.
  void attached(uint32_t slot, uint64_t reserve, uint32_t model = 0);

  /// A worker whose largest expert has `reserve` bytes. Refused (kExhausted) if the reserves of all workers no longer
  /// fit together. `model`: for whose share.
  Status attach(uint32_t slot, uint64_t reserve, const std::string& name, uint32_t model = 0);
  /// What each model is guaranteed and may have; unbounded until this is called.
  void set_model_share(uint32_t model, ModelShare share);
  /// Entries [first, first + count) are blobs of these models.
  void set_owners(uint32_t first, uint32_t count, ModelMask owners);
  uint64_t model_bytes(uint32_t model) const { return shares_.used(model); }
  const ModelShare& model_share(uint32_t model) const { return shares_.bounds(model); }
  /// Its pins have been cleared: drops its wants and its reserve.
  Actions gone(uint32_t slot);
  Actions fetch(uint32_t slot, ReadQueue::Why why, const std::vector<uint32_t>& entries);
  /// A worker comes for these: what of them is in the store already, through another pack, is not read for it again.
  Actions share_known(uint32_t first, uint32_t count);
  /// Withdraws the demands of a worker; its prefetches stand.
  Actions cancel(uint32_t slot);
  /// Nobody is told of what a prefetch brings: it lies there unpinned.
  Actions prefetch(uint32_t slot, ReadQueue::Why why, const std::vector<uint32_t>& entries);
  /// Prefetches of a worker for plans up to `plan_max`: other ranks, or dropped, by MoE layer.
  Actions steer(uint32_t slot, uint64_t plan_max, std::span<const LayerRank> layers);
  Actions read_done(uint32_t entry, uint64_t load, const Status& status, const ContentHash& content);
  /// Entries [first, first + blobs.size()), free until now, stand for these blobs. kExhausted, with the numbers, if
  /// their dense weights would leave no room for the experts of the workers there are.
  Status add_entries(uint32_t first, const std::vector<MachineBlob>& blobs);
  /// Nobody is attached for these any more. Each is forgotten as soon as it is not being read and no other entry has
  /// its bytes there.
  Actions remove_entries(uint32_t first, uint32_t count);
  /// All of them are forgotten, and nothing is being read from their pack: they may stand for other blobs.
  bool entries_free(uint32_t first, uint32_t count) const;
  /// Their pack is there again, as it was: what was bad may be tried anew.
  Actions mend_entries(uint32_t first, uint32_t count);
  /// Removed entries, or places under leases, wait for something that nobody reports. Call poll() now and then.
  bool sweeping() const { return sweep_again_ || !held_.empty(); }
  /// The bytes of a resident blob are not what was read: nobody leases it from here on, and it is read again at once
  /// where it lies, whoever has it pinned (store/machine/failed_loads.cc).
  Actions found_wrong(uint32_t entry);
  /// Looks at what workers left in some of their pin words. Call it now and then: every word is to be seen before its
  /// count turns over.
  void look_around();
  /// At all of them: before a worker's words go with it.
  void look_at_all();
  /// Something may have been unpinned. Call now and then while blocked().
  Actions poll();

  /// A blob waits for room that only unpinning can make; workers unpin without telling.
  bool blocked() const { return blocked_; }
  const Counters& counters() const { return counters_; }
  /// What became of the prefetches that landed. Looks at the workers' words first: a hit tells nobody.
  const PrefetchLedger::Counters& prefetch_counters();
  uint64_t used_bytes() const { return placement_.used_bytes(); }
  uint64_t segment_bytes() const { return placement_.segments().segment_bytes(); }
  Residency state(uint32_t entry) const { return entries_[entry].state; }
  uint64_t generation(uint32_t entry) const { return entries_[entry].generation; }
  uint64_t offset(uint32_t entry) const { return entries_[entry].offset; }
  /// Whether its bytes at offset() are its own, be they there or not.
  bool has_place(uint32_t entry) const { return entries_[entry].placed; }
  uint32_t entries() const { return static_cast<uint32_t>(entries_.size()); }
  /// Where `length` bytes of the arena hold nothing now; they stay free.
  std::optional<uint64_t> free_range(uint64_t length) const { return placement_.free_range(length); }
  /// The entry that holds the bytes of this one: itself, unless another one with equal content was first.
  uint32_t resolve(uint32_t entry) const { return contents_.resolve(entry); }
  uint64_t resident_bytes() const;
  size_t aliases() const { return contents_.aliases(); }
  const Status& failure(uint32_t entry) const { return entries_[entry].failure; }
  std::string_view policy() const { return policy_->name(); }
  size_t queued() const { return queue_.queued(); }
  size_t queued(ReadClass read_class) const { return queue_.queued(read_class); }
  size_t loading(ReadClass read_class) const { return loading_[static_cast<size_t>(read_class)]; }
  size_t loading() const { return loading_[0] + loading_[1] + loading_[2]; }
  size_t unchecked() const { return unchecked_; }  ///< entries that are kAdopted
  uint64_t expert_bytes() const { return expert_bytes_; }

 private:
  struct Entry {
    MachineBlob blob;
    Residency state = Residency::kAbsent;
    uint64_t generation = 0;
    uint64_t offset = 0;
    uint64_t load = 0;
    bool used = false;    ///< stands for a blob of a pack
    bool going = false;   ///< of a pack that has been removed; it stays while it holds the bytes of others
    ModelMask owners = 0;   ///< the models of its own pack
    ModelMask charged = 0;  ///< those that its bytes count for, while it has a place
    bool placed = false;    ///< [offset, offset + length) is its own
    bool leased = false;  ///< leases may look at that: it has been RESIDENT since it was last seen without pins
    bool held = false;    ///< kBad, and keeps its place until the last of those leases is gone
    uint32_t source = 0;  ///< the holder that the load under way reads from, or that served last
    std::vector<uint32_t> tried;  ///< holders that the load under way could not be read from
    ReadClass read_class = ReadClass::kDemand;  ///< of the load
    bool given_up = false;                      ///< the load: nobody wanted it any more
    Status failure;
  };
  StoreMachine(Options options, std::vector<MachineBlob> blobs, std::unique_ptr<policy::CachePolicy> policy,
               SharedState& shared);
  void place_dense();
  void schedule(Actions& actions);
  bool may_begin(const MachineBlob& blob, ReadClass read_class) const;
  void begin(uint32_t index, ReadClass read_class, Actions& actions);
  void read_where_it_lies(uint32_t index, Actions& actions);
  void failed(uint32_t index, const Status& why, Actions& actions);
  bool under_leases(uint32_t index);
  void leave_place(uint32_t index, Actions& actions);
  void leave_held_places(Actions& actions);
  ContentHash content_of(uint32_t index) const;
  void promote(uint32_t index, Actions& actions);
  Actions given_up(uint32_t index);
  void no_longer_loading(const Entry& entry);
  void give_up(const std::vector<uint32_t>& unwanted, Actions& actions);
  enum class Sparing : uint8_t {
    kShares,
    kRoomElsewhere
  };  ///< what holds eviction back: models' shares; or that there be room left for those who go
  std::optional<uint64_t> make_room(uint32_t entry, ReadClass read_class, Actions& actions);
  std::optional<uint64_t> place(uint32_t entry);
  bool evict_for(uint32_t entry, ReadClass read_class, const Shares::Eviction& why, Actions& actions);
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
  bool evict_one(const policy::Wanted& wanted, const Shares::Eviction& why, Actions& actions);
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
  std::vector<Entry> entries_;
  std::unique_ptr<policy::CachePolicy> policy_;
  std::map<uint64_t, uint32_t> groups_;   ///< of the policy, by rounded length
  std::vector<uint32_t> all_groups_;
  std::vector<uint32_t> looks_wait_;      ///< by group: evictions until all segments are looked at again
  UseWatch watch_;
  uint32_t looked_ = 0;  ///< the next entry of look_around()
  std::unordered_map<uint32_t, double>
      remembered_;  ///< when what is not there yet was last used, as the policy is to take it
  ReadQueue queue_;
  PrefetchLedger prefetched_;
  ContentIndex contents_;
  std::map<ContentKey, uint32_t> claims_;  ///< what manifests were found to say rightly: the first entry of those bytes
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
  bool blocked_ = false;
  bool sweep_again_ = false;
  std::vector<uint32_t> held_;  ///< entries that are
  Counters counters_;
};

}  // namespace moestro::store
