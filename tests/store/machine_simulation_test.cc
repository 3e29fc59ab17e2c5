// Thousands of seeded histories: workers that pin, fetch, compute, cancel and die at random, reads that complete in any
// order and sometimes fail. After every step: no pinned blob is evicted, no two ranges overlap; at the end: every fetch
// has ended.

#include <gtest/gtest.h>

#include <random>

#include "common/policy/lru_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

constexpr uint32_t kSimulated = 24;

struct SimWorker {
  bool attached = false;
  std::vector<uint32_t> waiting;   ///< to be asked for when the share allows
  std::set<uint32_t> asked;        ///< pinned as intent
  std::set<uint32_t> holding;      ///< leased
  uint64_t plan = 0;
};

class Simulation {
 public:
  Simulation(uint64_t seed, uint32_t workers, uint32_t slots, bool mixed_sizes) : random_(seed), workers_(workers) {
    blobs_.push_back({true, 8192});
    uint64_t largest = 0;
    for (uint32_t i = 0; i < kSimulated; ++i) {
      blobs_.push_back({false, mixed_sizes ? 4096 * (1 + i % 3) : 4096});
      largest = std::max(largest, blobs_.back().length);
    }
    reserve_ = largest;
    arena_ = 8192 + slots * largest;
    shared_.resize(blobs_.size());
    machine_ = std::move(
        *StoreMachine::create({arena_, 3 * largest, true}, blobs_, std::make_unique<policy::LruPolicy>(), shared_));
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      step();
      check();
      if (i % 100 == 0) check_counters();
    }
    drain();
  }

 private:
  uint64_t pick(uint64_t n) { return random_() % n; }

  void step() {
    const auto slot = static_cast<uint32_t>(pick(workers_.size()));
    SimWorker& worker = workers_[slot];
    if (!worker.attached) {
      worker.attached = machine_->attach(slot, reserve_, "w").is_ok();
      return;
    }
    machine_->at(now_ += pick(500) == 0 ? std::chrono::seconds(15) : Nanos(pick(5)));
    switch (pick(14)) {
      case 0: return begin_layer(worker);
      case 1: return pin_one(slot, worker, static_cast<uint32_t>(1 + pick(kSimulated)));
      case 2: if (pick(10) == 0) return cancel(slot, worker); break;
      case 3: if (pick(20) == 0) return die(slot, worker); break;
      case 4: case 5: case 6: return complete_a_read();
      case 7: perform(machine_->poll()); return;
      case 8: case 9: case 10: return foresee(slot);
      default: advance(slot, worker);
    }
  }

  void begin_layer(SimWorker& worker) {
    if (!worker.waiting.empty() || !worker.asked.empty()) return;
    ++worker.plan;
    for (uint32_t i = 0, n = static_cast<uint32_t>(1 + pick(kSimulated)); i < n; ++i) {
      const auto entry = static_cast<uint32_t>(1 + pick(kSimulated));
      if (!worker.holding.contains(entry) && std::ranges::find(worker.waiting, entry) == worker.waiting.end())
        worker.waiting.push_back(entry);
    }
  }

  void foresee(uint32_t slot) {
    std::vector<ForeseenEntry> experts;
    for (uint64_t n = pick(2 * kSimulated); n > 0; --n)
      experts.push_back({static_cast<uint32_t>(1 + pick(kSimulated)), static_cast<float>(pick(11)) / 10,
                         Nanos(pick(100))});
    perform(machine_->foresee(slot, {experts, pick(4) == 0, pick(2) == 0}));
  }

  uint64_t pinned_bytes(const SimWorker& worker) const {
    uint64_t bytes = 0;
    for (const auto* set : {&worker.asked, &worker.holding})
      for (const uint32_t entry : *set) bytes += shared_.pin_cost(blobs_[entry].length);
    return bytes;
  }

  void pin_one(uint32_t slot, SimWorker& worker, uint32_t entry) {  // a hit
    if (worker.asked.contains(entry) || shared_.state(entry) != Residency::kResident) return;
    if (pinned_bytes(worker) + shared_.pin_cost(blobs_[entry].length) > shared_.shares[slot]) return;
    shared_.pins[slot].insert(entry);
    worker.holding.insert(entry);
    std::erase(worker.waiting, entry);
  }

  void advance(uint32_t slot, SimWorker& worker) {
    while (!worker.holding.empty()) release(slot, worker, *worker.holding.begin());  // computes, lets go, then waits
    std::vector<uint32_t> ask;
    while (!worker.waiting.empty() &&
           pinned_bytes(worker) + shared_.pin_cost(blobs_[worker.waiting.front()].length) <= shared_.shares[slot]) {
      const uint32_t entry = worker.waiting.front();
      worker.waiting.erase(worker.waiting.begin());
      shared_.pins[slot].insert(entry);
      worker.asked.insert(entry);
      ask.push_back(entry);
    }
    if (!ask.empty()) perform(machine_->fetch(slot, {worker.plan, 0}, ask));
  }

  void release(uint32_t slot, SimWorker& worker, uint32_t entry) {
    worker.holding.erase(entry);
    shared_.use(slot, entry);
    shared_.pins[slot].erase(entry);
  }

  void cancel(uint32_t slot, SimWorker& worker) {
    for (const uint32_t entry : worker.asked) shared_.pins[slot].erase(entry);
    worker.asked.clear(), worker.waiting.clear();
    perform(machine_->cancel(slot));
  }

  void die(uint32_t slot, SimWorker& worker) {
    worker = SimWorker{};
    shared_.pins[slot].clear();
    perform(machine_->gone(slot));
  }

  void complete_a_read() {
    if (reads_.empty()) return;
    const auto at = reads_.begin() + static_cast<long>(pick(reads_.size()));
    const Action read = *at;
    reads_.erase(at);
    const bool fails = pick(200) == 0, ends_early = cancelled_.erase(read.load) != 0 && pick(2) == 0;
    const Status status = ends_early ? cancelled("") : fails ? io_error("bad") : Status::ok();
    const uint64_t carried = status ? 0 : pick(read.length + 1);
    if (ends_early) wasted_ += carried;
    perform(machine_->read_done(read.entry, read.load, status, {}, carried));
  }

  void perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kRead) reads_.push_back(action);
      if (action.kind == Action::Kind::kCancel) cancelled_.insert(action.load);
      if (action.kind == Action::Kind::kNotify) arrived(action);
      if (action.kind == Action::Kind::kPoison)
        for (const SimWorker& worker : workers_)
          ASSERT_FALSE(worker.holding.contains(action.entry)) << "a pinned blob was evicted";
    }
  }

  void arrived(const Action& action) {
    SimWorker& worker = workers_[action.slot];
    if (worker.asked.erase(action.entry) == 0) return;
    if (action.outcome == Code::kOk) worker.holding.insert(action.entry);
    else shared_.pins[action.slot].erase(action.entry);
  }

  void check() {
    ASSERT_EQ(machine_->inconsistency(), "");
    std::map<uint64_t, uint64_t> ranges{{0, 8192}};
    for (const Action& read : reads_)
      if (!blobs_[read.entry].dense) add(ranges, read.offset, read.length);
    for (uint32_t entry = 1; entry <= kSimulated; ++entry) {
      ASSERT_NE(shared_.state(entry), Residency::kEvicting);
      if (shared_.state(entry) == Residency::kResident) add(ranges, shared_.offsets[entry], blobs_[entry].length);
    }
    for (const SimWorker& worker : workers_)
      for (const uint32_t entry : worker.holding) ASSERT_EQ(shared_.state(entry), Residency::kResident);
  }

  /// Of each read ahead, what became of it is counted once.
  void check_counters() {
    const StoreMachine::Counters& counters = machine_->counters();
    const PrefetchLedger::Counters& ended = machine_->prefetch_counters();
    ASSERT_GE(ended.wasted_bytes, wasted_ + 4096 * ended.wasted);
    ASSERT_GE(counters.prefetches, counters.prefetches_late + ended.used + ended.wasted + ended.unused);
    ASSERT_GE(counters.prefetches, counters.prefetches_dropped);
  }

  void add(std::map<uint64_t, uint64_t>& ranges, uint64_t offset, uint64_t length) {
    ASSERT_LE(offset + length, arena_);
    const auto next = ranges.lower_bound(offset);
    if (next != ranges.end()) ASSERT_LE(offset + length, next->first);
    if (next != ranges.begin()) ASSERT_LE(std::prev(next)->first + std::prev(next)->second, offset);
    ranges[offset] = length;
  }

  /// Everyone goes on until nothing is outstanding: whoever waits must get what it waits for.
  void drain() {
    for (int round = 0; round < 5000; ++round) {
      bool outstanding = false;
      for (uint32_t slot = 0; slot < workers_.size(); ++slot) {
        if (!workers_[slot].attached) continue;
        advance(slot, workers_[slot]);
        outstanding |= !workers_[slot].waiting.empty() || !workers_[slot].asked.empty();
      }
      complete_a_read();
      perform(machine_->poll());
      check();
      if (!outstanding && reads_.empty()) return;
    }
    FAIL() << "a fetch never ended";
  }

  std::mt19937_64 random_;
  std::vector<SimWorker> workers_;
  std::vector<MachineBlob> blobs_;
  uint64_t arena_ = 0, reserve_ = 0;
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  std::vector<Action> reads_;
  std::set<uint64_t> cancelled_;  ///< loads that may end early
  uint64_t wasted_ = 0;           ///< bytes of those that did
  Nanos now_{0};
};

class MachineSimulation : public ::testing::TestWithParam<bool> {};

TEST_P(MachineSimulation, ThreeWorkersOnFourSlots) {
  for (uint64_t seed = 1; seed <= 300 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation(seed, 3, 4, GetParam()).run(1500);
  }
}

TEST_P(MachineSimulation, ManyShapes) {
  for (uint64_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation(seed, static_cast<uint32_t>(1 + seed % 5), static_cast<uint32_t>(5 + seed % 7), GetParam()).run(1500);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MachineSimulation, ::testing::Bool(),
                         [](const auto& sizes) { return sizes.param ? "mixed" : "uniform"; });

}  // namespace
}  // namespace moestro::store
