#pragma once
// A simulated box around one StoreMachine: packs that share contents and whose files get damaged, a drive that reads
// page by page, an arena in which every page says what it holds, and workers that follow the client's protocol. All of
// it can be killed, damaged, added, removed and replaced at any moment, and the store can also die between any two of
// its writes to shared memory. After every event everything visible is checked. The same seed gives the same history.

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/store/fake_shared_state.h"

namespace moestro::store::testing {

/// A broken promise.
struct Wrong : std::logic_error {
  using std::logic_error::logic_error;
};
/// The store dies here.
struct Killed {};


struct Content {
  bool dense = false;
  uint32_t pages = 1;
  bool streamed = false;
};

enum class Harm : uint8_t {
  kNone,
  kHit,      ///< it was right, and has changed in memory
  kMisread,  ///< a damaged file's
};

struct Page {
  static constexpr uint32_t kPoison = UINT32_MAX;
  uint32_t content = 0;  ///< 0: nothing yet
  uint32_t number = 0;   ///< of its content's pages
  Harm harm = Harm::kNone;
};

/// A pack's files as they were opened. Reads in flight use the files that they began with.
struct Files {
  enum class Health : uint8_t { kGood, kDamaged, kUnreadable };
  std::vector<uint32_t> contents;  ///< by blob
  std::vector<Health> health;
};

struct ServedPack {
  uint32_t first = 0;  ///< entry
  uint32_t model = 0;
  std::shared_ptr<Files> files;
  bool retired = false, removed = false;
  uint32_t blobs() const { return static_cast<uint32_t>(files->contents.size()); }
};

class StoreWorld;

/// Does what StoreClient does, one step at a time.
class SimulatedWorker {
 public:
  enum class State : uint8_t { kOut, kIn, kDead };  ///< dead: the store has not noticed yet
  struct Lease {
    uint32_t blob = 0, entry = 0, content = 0;
    uint64_t offset = 0;
    bool harmed = false;  ///< there was damage while it was held, or when it began
  };

  SimulatedWorker(StoreWorld& world, uint32_t slot) : world_(world), slot_(slot) {}
  void attach(uint32_t first);
  void act();
  /// Looks whether anything has come, and asks for what has not.
  void look();
  void release_all();
  /// Nothing that it has wished for is still to come.
  bool idle() const { return waiting_.empty() && asked_.empty(); }
  std::string text() const;
  bool over_window_share() const;
  void leave();  ///< its process is gone; for its pins, see StoreWorld
  void told(uint32_t entry, Code outcome);
  /// It has seen RESIDENT before the store said EVICTING, and sets its pin only now.
  void pin_too_late(uint32_t entry);

  State state = State::kOut;
  bool stopped = false;
  uint32_t pack = 0;  ///< its first entry
  uint64_t incarnation = 0;
  std::vector<Lease> leases;

 private:
  enum class Use : uint8_t { kNone, kWaiting, kAsked, kLeased };
  struct Record {
    uint32_t entry = 0, content = 0;
    uint64_t length = 0;
    bool dense = false, held = false, streamed = false, pinned = false, failed = false;
    Use use = Use::kNone;
  };
  void fetch(const std::vector<uint32_t>& blobs);
  void look_at_late_pins();
  void ask_streamed();
  uint32_t pinned_streamed() const;
  void activate();
  void ask(const std::vector<uint32_t>& blobs);
  bool look_at(uint32_t blob);
  Residency follow(Record& record);
  void try_pin(uint32_t blob);
  void set_pin(Record& record);
  void clear_pin(Record& record);
  void lease(uint32_t blob);
  void release(size_t lease);
  void cancel();
  bool fits(const Record& record) const;
  uint32_t any_expert();

  StoreWorld& world_;
  const uint32_t slot_;
  uint64_t plan_ = 0;
  std::vector<Record> blobs_;
  std::deque<uint32_t> waiting_, rung_;
  std::vector<uint32_t> asked_, late_;
};

struct Message {
  enum class Kind : uint8_t { kFetch, kForesee, kCancel, kDetach } kind = Kind::kFetch;
  uint32_t slot = 0;
  uint64_t incarnation = 0, plan = 0;
  std::vector<uint32_t> blobs = {};
};

class StoreWorld {
 public:
  /// What came about, so that a test can see that nothing was left out.
  struct Tally {
    uint64_t events = 0, leases = 0, kills = 0, adoptions = 0, adopted = 0, damaged = 0, hits = 0, rereads = 0,
             bad = 0, bad_dense = 0, elsewhere = 0, aliases = 0, dense_aliases = 0, warm = 0, packs_added = 0,
             packs_gone = 0, mended = 0, stops = 0, removed_while_warming = 0, outlooks = 0, read_ahead = 0,
             given_up = 0, streamed = 0;
    void add(const Tally& more);
    std::string text() const;
  };
  explicit StoreWorld(uint64_t seed);
  ~StoreWorld();
  /// Throws Wrong.
  void run(uint64_t events);
  const Tally& tally() const { return tally_; }

 private:
  friend class SimulatedWorker;
  struct Read {
    Action action;
    std::shared_ptr<Files> files;
    uint32_t blob = 0, pages_done = 0;
    bool cancelled = false;
  };
  struct Check {
    uint64_t load = 0, offset = 0;
  };

  // store_world.cc: the store's server, the drive, what happens
  uint64_t pick(uint64_t n) { return random_() % n; }
  bool chance(uint64_t one_in) { return pick(one_in) == 0; }
  void event();
  void server_turn();
  void receive();
  void post(Message message) { mail_.push_back(std::move(message)); }
  void perform(const Actions& actions);
  void begin_read(const Action& action);
  void drive_one();
  void write_page(Read& read);
  void check_one();
  void warm_some();
  void damage_memory();
  void damage_file();
  void scrub();
  void change_packs();
  void add_pack();
  void mend(ServedPack& pack);
  void release_packs();
  void drop_worker(uint32_t slot);
  void shut_down();
  void quiesce();
  bool settled();
  void end();

  // store_world_lives.cc: stores that begin, die, and follow each other
  void start_afresh(std::vector<Warmth> hot);
  void make_machine();
  void add_window();
  void die();
  void succeed();
  bool contiguous() const;
  void survive(void (StoreWorld::*what)());

  // store_world_checks.cc
  void check();
  void check_leases();
  void check_ranges();
  void check_entries();
  void check_removed();
  void foresee(uint32_t slot, const std::vector<uint32_t>& entries);
  std::string what_is_outstanding() const;
  [[noreturn]] void wrong(const std::string& what) const;
  void expect(bool right, const char* what) const {
    if (!right) wrong(what);
  }

  const ServedPack* pack_of(uint32_t entry) const;
  uint32_t content_of(uint32_t entry) const;
  uint32_t workers_of(const ServedPack& pack) const;
  MachineBlob blob_of(uint32_t content) const;
  Page* pages_at(uint64_t offset) { return &arena_.at(offset / kPage); }
  bool holds(uint64_t offset, uint32_t content, Harm worst) const;

  std::mt19937_64 random_;
  const bool claims_;  ///< manifests say what is equal
  const std::string policy_;
  std::vector<Content> contents_;                 ///< by number; 0 is none
  std::vector<std::vector<uint32_t>> templates_;  ///< contents of a pack's blobs
  uint64_t arena_bytes_ = 0, segment_bytes_ = 0;
  WindowShape window_;
  FakeSharedState shared_;
  std::vector<Page> arena_;
  std::unique_ptr<StoreMachine> machine_;
  std::map<uint32_t, ServedPack> packs_;  ///< by first entry
  std::vector<SimulatedWorker> workers_;
  std::vector<Read> reads_;
  std::map<uint32_t, Check> checks_;  ///< by entry
  std::deque<Message> mail_;
  std::deque<uint32_t> warm_;    ///< still to be named
  std::vector<uint32_t> named_;  ///< asked for by the warm start
  uint64_t incarnations_ = 0, kill_after_ = 0;
  Nanos now_{0};
  bool calm_ = false;  ///< nothing goes wrong any more
  Tally tally_;
};

}  // namespace moestro::store::testing
