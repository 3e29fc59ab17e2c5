// Every interleaving of the real StoreClient with the real StoreMachine, over the files of a real arena: a worker pins
// and reads, the store takes what it has for something else, finds it wrong, reads it, or finds that it has it already.
//
// The client is compiled here with its accesses to shared words watched (store/client/shared_words.h); the machine's go
// through SharedState. Each is a step, and each order of steps is an execution. A store by the worker that is not
// sequentially consistent waits in a buffer, from which it goes at any later time, as on the machines there are. What
// the protocol could do wrong is done on purpose, too: the search must find it.

#include <gtest/gtest.h>

#include <thread>

#include "common/policy/lru_policy.h"
#include "store/client/shared_words.h"
#include "store/client/store_client.h"
#include "store/server/arena_state.h"
#include "tests/store/interleavings.h"
#include "tests/store/memory_directory.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
constexpr uint64_t kPage = 4096;
constexpr uint32_t kA = 0, kB = 1, kC = 2, kD = 3, kBlobs = 4;

enum class Mutant : uint8_t {
  kNone,
  kRelaxedPin,       ///< the pin is set by a store that later loads may overtake
  kNoLookAfterPin,   ///< what the word said before the pin is taken for what it says after it
  kLateCount,        ///< the count of finds is loaded when the lease ends, and not when it begins
};

/// What watches the words of the one worker that there is, while an execution runs.
struct Watch {
  Turns& turns;
  const std::atomic<uint64_t>* pins;  ///< as the worker has them mapped
  const TableEntry* entries;
  Mutant mutant = Mutant::kNone;
  std::vector<std::pair<std::atomic<uint64_t>*, uint64_t>> waiting = {};  ///< stores, oldest first
  std::array<uint64_t, kBlobs> seen = {};                                 ///< what its last look at each word found

  void let_one_go() {
    waiting.front().first->store(waiting.front().second);
    waiting.erase(waiting.begin());
  }
  void let_all_go() {
    while (!waiting.empty()) let_one_go();
  }
  uint64_t own(const std::atomic<uint64_t>& word) const {
    const auto last = std::find_if(waiting.rbegin(), waiting.rend(), [&](const auto& w) { return w.first == &word; });
    return last == waiting.rend() ? word.load() : last->second;
  }
};
Watch* g_watch = nullptr;

}  // namespace

uint64_t words::watched_load(const std::atomic<uint64_t>& word, std::memory_order) {
  if (g_watch == nullptr) return word.load();
  for (uint32_t blob = 0; blob < kBlobs; ++blob) {
    const std::atomic<uint64_t>& pin = g_watch->pins[blob];
    if (&word == &pin) return g_watch->own(word);  // nobody else writes it: no step
    if (&word != &g_watch->entries[blob].word) continue;
    if (g_watch->mutant == Mutant::kNoLookAfterPin && PinWord::pinned(g_watch->own(pin))) return g_watch->seen[blob];
    g_watch->turns.step(0);
    return g_watch->seen[blob] = word.load();
  }
  g_watch->turns.step(0);
  return word.load();
}

uint32_t words::watched_load(const std::atomic<uint32_t>& word, std::memory_order) {
  if (g_watch == nullptr) return word.load();
  g_watch->turns.step(0);
  return word.load();
}

void words::watched_store(std::atomic<uint64_t>& word, uint64_t value, std::memory_order order) {
  if (g_watch == nullptr) return word.store(value);
  if (order != std::memory_order_seq_cst || g_watch->mutant == Mutant::kRelaxedPin)
    return g_watch->waiting.emplace_back(&word, value), void();
  g_watch->turns.step(0);
  g_watch->let_all_go();
  word.store(value);
}

namespace {

/// The machine's view of the arena's files, each access a step of the store.
class SteppedState final : public SharedState {
 public:
  explicit SteppedState(ArenaFiles& files) : state_(files) {}
  void set_word(uint32_t entry, Residency state, uint64_t generation) override {
    step(), state_.set_word(entry, state, generation);
  }
  void set_place(uint32_t entry, uint64_t offset, const ContentHash& content) override {
    step(), state_.set_place(entry, offset, content);
  }
  void set_alias(uint32_t entry, uint32_t first) override { step(), state_.set_alias(entry, first); }
  void clear_alias(uint32_t entry) override { step(), state_.clear_alias(entry); }
  void set_length(uint32_t entry, uint64_t bytes) override { state_.set_length(entry, bytes); }
  void note_wrong(uint32_t entry) override { step(), state_.note_wrong(entry), wrong_is_noted = true; }
  bool pinned(uint32_t entry) const override { return step(), state_.pinned(entry); }
  UseNote uses(uint32_t entry) const override { return state_.uses(entry); }
  uint64_t uses_of_all() const override { return state_.uses_of_all(); }
  uint64_t stamp_now() const override { return ++now_; }
  void set_share(uint32_t slot, uint64_t bytes) override { state_.set_share(slot, bytes); }
  void set_window_share(uint32_t slot, uint32_t places) override { state_.set_window_share(slot, places); }
  void set_pin_bytes_min(uint64_t bytes) override { state_.set_pin_bytes_min(bytes); }
  static void step() {
    if (g_watch != nullptr) g_watch->turns.step(1);
  }
  bool wrong_is_noted = false;

 private:
  ArenaState state_;
  mutable uint64_t now_ = 0;
};

class PinProtocol : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { stay_on_one_core(); }
  /// What a worker found out under a lease.
  struct Used {
    bool leased = false, right = true, told = false;
  };
  /// `slots` experts fit. `equal_to_a`: has the bytes of A.
  void make(uint64_t slots, uint32_t equal_to_a = kA) {
    slots_ = slots, equal_to_a_ = equal_to_a;
    auto files = ArenaFiles::lock(dir_.path() / "arena", milliseconds(0), [] { return false; });
    ASSERT_TRUE(files) << files.status().message();
    files_ = std::move(*files);
    const Status made = files_->create(slots * kPage, kBlobs, 7, [](uint64_t) { return true; });
    ASSERT_TRUE(made) << made.message();
    const Status held = files_->create_slot(0, {1, "m", "worker"});
    ASSERT_TRUE(held) << held.message();
  }
  void new_client() {
    using Access = shm::MappedFile::Access;
    const auto dir = files_->dir();
    auto socket = net::DealerSocket::connect("ipc://" + (dir / "nobody").string());
    ASSERT_TRUE(socket);
    auto at = std::unique_ptr<Attachment>(
        new Attachment{"nobody", std::move(*socket), 0, 1, {}, {0, 1, 2, 3}, {}, {}, {}, {}, {}, {}, {}});
    at->manifest.model_name = "m";
    for (uint32_t blob = 0; blob < kBlobs; ++blob)
      at->manifest.blobs.push_back({BlobKind::kExpert, MoeLayerId(0), ExpertId(blob), DType::kF32, kPage, {}});
    at->arena = *shm::MappedFile::open(dir / "arena", Access::kReadOnly, slots_ * kPage);
    at->table = *shm::MappedFile::open(dir / "table", Access::kReadOnly, table_bytes(kBlobs));
    at->pins = *shm::MappedFile::open(dir / "pins" / "0", Access::kReadWrite, pins_bytes(kBlobs));
    at->bell = *shm::MappedFile::open(dir / "bell" / "0", Access::kReadOnly, bell_bytes());
    at->store_alive = *shm::FileLock::open(dir / "alive", false);
    pins_ = &at->pin(0), entries_ = &at->entry(0);
    client_ = std::make_unique<StoreClient>(std::move(at), milliseconds(60000));
  }
  /// An arena with `resident` in it.
  void reset(std::span<const uint32_t> resident) {
    for (uint32_t blob = 0; blob < kBlobs; ++blob) {
      TableEntry& entry = files_->entry(blob);
      entry.word = 0, entry.offset = 0, entry.alias = 0, entry.found_wrong = 0;
      files_->pin_word(0, blob) = 0;
    }
    state_.emplace(*files_);
    auto made = StoreMachine::create({.arena_bytes = slots_ * kPage, .loading_bytes_max = 1 << 20},
                                     std::vector<MachineBlob>(kBlobs, {.length = kPage, .format = 1}),
                                     std::make_unique<policy::LruPolicy>(), *state_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kPage, "worker"));
    for (const uint32_t blob : resident) perform(machine_->fetch(1, {}, {blob}));
    new_client();
  }
  uint32_t bytes_of(uint32_t blob) const { return blob == equal_to_a_ ? kA : blob; }
  std::byte byte_of(uint32_t blob) const { return static_cast<std::byte>(1 + bytes_of(blob)); }

  /// What the server does; a read writes the first and the last byte.
  void perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kNotify && action.slot == 0)
        files_->ring(0, action.entry, static_cast<uint32_t>(action.outcome));
      if (action.kind != Action::Kind::kRead) continue;
      for (const uint64_t at : {uint64_t{0}, kPage - 1}) {
        SteppedState::step();
        files_->arena()[action.offset + at] = byte_of(action.source);
      }
      perform(machine_->read_done(action.entry, action.load, Status::ok(), {bytes_of(action.entry) + 1, 1}));
    }
  }
  /// The worker's steps under a lease.
  Used use(Lease lease) {
    Used used{.leased = true};
    for (const uint64_t at : {uint64_t{0}, kPage - 1}) {
      g_watch->turns.step(0);
      used.right = used.right && lease.data()[at] == byte_of(lease.blob());
    }
    if (!asks_) return used;
    used.told = g_watch->mutant == Mutant::kLateCount ? client_->finds(lease.blob()) != client_->finds(lease.blob())
                                                      : !lease.is_right();
    if (!used.right && !used.told && state_->wrong_is_noted) ++not_told_;
    return used;
  }
  void try_to_use(uint32_t blob) {
    if (auto lease = client_->try_pin(blob)) note(use(std::move(*lease)));
  }
  /// Asks, and looks a few times whether it is there.
  void ask_and_use(uint32_t blob) {
    (void)client_->fetch(std::vector<uint32_t>{blob}, {});
    for (int looks = 0; looks < 2; ++looks) {
      auto arrived = client_->next_arrival(milliseconds(0));
      if (arrived) return note(use(std::move(*arrived)));
    }
    client_->cancel_fetches();
  }
  void note(const Used& used) { leases_ += used.leased, wrong_ += !used.right, told_ += used.told; }

  /// All executions of the two, with as many passes of the turn, up to one in which something is wrong: under a lease,
  /// or at the end, when no pin may be left and `blob` is to be had.
  void explore(std::span<const uint32_t> resident, const std::function<void()>& before,
               const std::function<void()>& worker, const std::function<void()>& store, uint32_t blob,
               Mutant mutant = Mutant::kNone, int switches_max = 1000) {
    Orders orders;
    executions_ = leases_ = wrong_ = told_ = not_told_ = left_pinned_ = not_to_be_had_ = 0;
    do {
      reset(resident);
      before();
      Turns turns(orders, switches_max, [] { return !g_watch->waiting.empty(); }, [] { g_watch->let_one_go(); });
      Watch watch{turns, pins_, entries_, mutant};
      g_watch = &watch;
      std::thread other([&] { turns.begin(1), store(), turns.end(1); });
      worker();
      turns.end(0);
      other.join();
      watch.let_all_go();
      g_watch = nullptr;
      for (uint32_t b = 0; b < kBlobs; ++b) left_pinned_ += PinWord::pinned(files_->pin_word(0, b));
      perform(machine_->fetch(1, {}, {blob}));
      perform(machine_->poll());
      not_to_be_had_ += machine_->state(machine_->resolve(blob)) != Residency::kResident;
      ++executions_;
    } while (orders.next() && (asks_ ? not_told_ : wrong_) + left_pinned_ + not_to_be_had_ == 0);
    std::printf("%s: %zu executions, %zu leases\n",
                ::testing::UnitTest::GetInstance()->current_test_info()->name(), executions_, leases_);
  }
  void expect_sound(size_t executions_min) {
    EXPECT_EQ(wrong_, 0u) << "of " << leases_ << " leases";
    EXPECT_EQ(left_pinned_, 0u);
    EXPECT_EQ(not_to_be_had_, 0u);
    EXPECT_GT(leases_, 0u);
    EXPECT_LT(leases_, executions_) << "in some of them the store was first";
    EXPECT_GE(executions_, executions_min) << "the search must have gone somewhere";
  }
  /// A is resident, and B is to have its place.
  void explore_eviction(Mutant mutant = Mutant::kNone) {
    make(1);
    explore(std::array{kA}, [] {}, [this] { try_to_use(kA); }, [this] { perform(machine_->fetch(1, {}, {kB})); }, kB,
            mutant);
  }
  /// A is resident, and wrong, which the scrubber finds.
  void explore_find(Mutant mutant = Mutant::kNone) {
    make(1);
    asks_ = true;
    explore(
        std::array{kA}, [this] { files_->arena()[kPage - 1] ^= std::byte{0x40}, state_->wrong_is_noted = false; },
        [this] { try_to_use(kA); }, [this] { perform(machine_->found_wrong(kA)); }, kA, mutant);
  }

  const testing::MemoryDirectory dir_{"/tmp"};
  uint64_t slots_ = 1;
  uint32_t equal_to_a_ = kA;
  bool asks_ = false;  ///< at the end of a lease, whether its bytes were found wrong
  std::unique_ptr<ArenaFiles> files_;
  std::optional<SteppedState> state_;
  std::unique_ptr<StoreMachine> machine_;
  std::unique_ptr<StoreClient> client_;
  const std::atomic<uint64_t>* pins_ = nullptr;
  const TableEntry* entries_ = nullptr;
  size_t executions_ = 0, leases_ = 0, wrong_ = 0, told_ = 0, not_told_ = 0, left_pinned_ = 0, not_to_be_had_ = 0;
};

TEST_F(PinProtocol, WhatIsPinnedIsNotTakenForAnother) {
  explore_eviction();
  expect_sound(1000);
}

TEST_F(PinProtocol, APinThatLoadsMayOvertakeIsFound) {
  explore_eviction(Mutant::kRelaxedPin);
  EXPECT_GT(wrong_, 0u);
}

TEST_F(PinProtocol, APinWithoutAnotherLookIsFound) {
  explore_eviction(Mutant::kNoLookAfterPin);
  EXPECT_GT(wrong_, 0u);
}

TEST_F(PinProtocol, WhoUsesWhatIsKnownToBeWrongIsTold) {
  explore_find();
  EXPECT_GT(wrong_, 0u) << "some were earlier than the scrubber";
  EXPECT_GT(told_, 0u);
  EXPECT_EQ(not_told_, 0u);
  EXPECT_EQ(left_pinned_, 0u);
  EXPECT_EQ(not_to_be_had_, 0u);
}

TEST_F(PinProtocol, ALeaseThatDoesNotKnowItsCountIsFound) {
  explore_find(Mutant::kLateCount);
  EXPECT_GT(not_told_, 0u);
}

/// Asked for, read, and taken again by another that wants its place: up to four times the turn passes unasked.
TEST_F(PinProtocol, WhatArrivesIsPinned) {
  make(1);
  const auto store = [this] {
    perform(machine_->fetch(0, {}, {kA}));
    perform(machine_->fetch(1, {}, {kB}));
  };
  explore(std::array{kB}, [] {}, [this] { ask_and_use(kA); }, store, kB, Mutant::kNone, 4);
  expect_sound(1000);
}

/// B turns out to be A, which goes when D comes.
TEST_F(PinProtocol, APinGoesWithItsAlias) {
  make(2, kB);
  const auto store = [this] {
    perform(machine_->fetch(0, {}, {kB}));
    perform(machine_->fetch(1, {}, {kC}));
    perform(machine_->fetch(1, {}, {kD}));
  };
  explore(std::array{kA}, [] {}, [this] { ask_and_use(kB); }, store, kD, Mutant::kNone, 3);
  expect_sound(1000);
}

}  // namespace
}  // namespace moestro::store
