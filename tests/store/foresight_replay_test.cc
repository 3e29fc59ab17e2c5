// What reading ahead is worth, on a virtual clock: one worker computes layer after layer, one drive reads chunk by
// chunk, and the machine decides. Prints a table of stalls and bytes.

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "common/policy/make_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

constexpr uint32_t kLayers = 8, kPerLayer = 8, kChunks = 4;
constexpr uint64_t kChunk = 4096, kBlob = kChunks * kChunk;
constexpr Nanos kCompute{8000};    ///< of an expert
constexpr Nanos kAttention{8000};  ///< of a layer
constexpr uint32_t kSteps = 80, kWarmSteps = 30;

/// [step][layer]: experts.
using Routes = std::vector<std::vector<std::vector<uint32_t>>>;

/// A pattern of six steps, and a fifth of the choices by chance.
Routes repeating(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto other_than = [&](const std::vector<uint32_t>& chosen) {
    while (true) {
      const auto expert = static_cast<uint32_t>(random() % kPerLayer);
      if (std::ranges::find(chosen, expert) == chosen.end()) return expert;
    }
  };
  Routes routes(kSteps + kLayers, std::vector<std::vector<uint32_t>>(kLayers));
  for (size_t step = 0; step < routes.size(); ++step)
    for (uint32_t layer = 0; layer < kLayers; ++layer)
      for (size_t rank = 0; rank < 2; ++rank) {
        auto& chosen = routes[step][layer];
        const bool repeats = step >= 6 && random() % 5 != 0;
        const uint32_t same = repeats ? routes[step - 6][layer][rank] : kPerLayer;
        const bool taken = !repeats || std::ranges::find(chosen, same) != chosen.end();
        chosen.push_back(taken ? other_than(chosen) : same);
      }
  return routes;
}

/// So many sequences that each layer uses every expert.
Routes all_in_turn() {
  std::vector<uint32_t> all(kPerLayer);
  for (uint32_t expert = 0; expert < kPerLayer; ++expert) all[expert] = expert;
  return Routes(kSteps + kLayers, std::vector(kLayers, all));
}

/// Of each choice, with a probability of 0.7, itself, else another expert.
Routes partly_right(const Routes& routes) {
  std::mt19937_64 random(7);
  Routes guessed = routes;
  for (auto& step : guessed)
    for (auto& layer : step)
      for (uint32_t& expert : layer)
        if (random() % 10 >= 7) expert = static_cast<uint32_t>((expert + 1 + random() % (kPerLayer - 1)) % kPerLayer);
  return guessed;
}

struct Result {
  double stall = 0;  ///< of the time that computing takes
  uint64_t bytes = 0;
};

struct Foreseer {
  const Routes* routes = nullptr;  ///< nullptr: nothing is foreseen
  float probability = 1;
  bool leads = true;
};

class Box {
 public:
  Box(const std::string& policy, double resident, double read_per_compute)
      : chunk_time_(static_cast<int64_t>(static_cast<double>(kCompute.count()) * read_per_compute / kChunks)) {
    std::vector<MachineBlob> blobs(kLayers * kPerLayer, {false, kBlob});
    shared_.resize(blobs.size());
    StoreMachine::Options options;
    options.arena_bytes = static_cast<uint64_t>(resident * kLayers * kPerLayer) * kBlob;
    options.loading_bytes_max = 2 * kBlob;
    machine_ = std::move(*StoreMachine::create(options, blobs, *policy::make_policy(policy, blobs.size()), shared_));
    EXPECT_TRUE(machine_->attach(0, kBlob, "w"));
  }

  Result run(const Routes& routes, const Foreseer& foreseer) {
    Nanos computed{0};
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (step == kWarmSteps) stalled_ = computed = Nanos{0}, chunks_ = 0;
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        pass(kAttention);
        const Nanos took = now_ - routed_;
        per_layer_ = per_layer_ == Nanos{0} ? took : per_layer_ + (took - per_layer_) / 16;
        routed_ = now_;
        const auto& experts = routes[step][layer];
        use(layer, experts, foreseer, step);
        computed += kAttention + kCompute * static_cast<int64_t>(experts.size());
      }
    }
    return {static_cast<double>(stalled_.count()) / static_cast<double>(computed.count()), chunks_ * kChunk};
  }
  const StoreMachine& machine() const { return *machine_; }

 private:
  struct Load {
    Action action;
    uint32_t chunks = 0;
    bool demand = false, cancelled = false;
  };

  void use(uint32_t layer, const std::vector<uint32_t>& experts, const Foreseer& foreseer, uint32_t step) {
    std::vector<uint32_t> present, absent;
    for (const uint32_t expert : experts) {
      const uint32_t entry = layer * kPerLayer + expert;
      (shared_.state(entry) == Residency::kResident ? present : absent).push_back(entry);
      shared_.pins[0].insert(entry);
      shared_.use(0, entry);
    }
    machine_->look_around();
    waiting_ = std::set(absent.begin(), absent.end());
    if (!absent.empty()) perform(machine_->fetch(0, {step, layer}, absent));
    if (foreseer.routes != nullptr) foresee(layer, step, foreseer);
    for (const uint32_t entry : present) compute(entry);
    for (size_t left = absent.size(); left > 0; --left) {
      const Nanos before = now_;
      while (arrived_.empty()) drive_next(Nanos::max());
      stalled_ += now_ - before;
      const uint32_t entry = arrived_.front();
      arrived_.erase(arrived_.begin());
      compute(entry);
    }
  }

  void compute(uint32_t entry) {
    pass(kCompute);
    shared_.pins[0].erase(entry);
  }

  /// The next pass of every layer.
  void foresee(uint32_t layer, uint32_t step, const Foreseer& foreseer) {
    std::vector<ForeseenEntry> experts;
    for (uint32_t ahead = 1; ahead <= kLayers; ++ahead) {
      const uint32_t target = (layer + ahead) % kLayers;
      for (const uint32_t expert : (*foreseer.routes)[step + (target > layer ? 0 : 1)][target])
        experts.push_back({target * kPerLayer + expert, foreseer.probability, per_layer_ * ahead});
    }
    perform(machine_->foresee(0, {experts, false, foreseer.leads}));
  }

  void pass(Nanos time) {
    const Nanos until = now_ + time;
    while (now_ < until) drive_next(until);
  }

  /// The next thing that happens, at `until` at the latest.
  void drive_next(Nanos until) {
    if (reading_ == nullptr) choose();
    Nanos next = reading_ != nullptr ? std::min(until, chunk_ends_) : until;
    const auto look = machine_->look_again();
    if (look) next = std::min(next, std::max(*look, now_));
    ASSERT_NE(next, Nanos::max()) << "nothing will ever happen";
    now_ = next;
    machine_->at(now_);
    if (look && *look <= now_) perform(machine_->poll());
    if (reading_ == nullptr || now_ < chunk_ends_) return;
    ++chunks_, ++reading_->chunks;
    end_if_done(*std::exchange(reading_, nullptr));
  }

  /// Demands first, in their order.
  void choose() {
    for (const bool cancelled : {true, false})
      for (const auto& load : loads_)
        if (cancelled && load->cancelled) return end_if_done(*load), choose();
    const auto first = std::ranges::find_if(loads_, [](const auto& load) { return load->demand; });
    if (loads_.empty()) return;
    reading_ = first != loads_.end() ? first->get() : loads_.front().get();
    chunk_ends_ = now_ + chunk_time_;
  }

  void end_if_done(const Load& load) {
    if (load.chunks < kChunks && !load.cancelled) return;
    const Load done = load;
    std::erase_if(loads_, [&](const auto& other) { return other->action.load == done.action.load; });
    const Status status = done.chunks < kChunks ? cancelled("") : Status::ok();
    perform(machine_->read_done(done.action.entry, done.action.load, status, {done.action.entry + 1, 1}));
  }

  void perform(const Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kRead)
        loads_.push_back(std::make_unique<Load>(Load{action, 0, action.read_class == ReadClass::kDemand}));
      for (const auto& load : loads_) {
        if (load->action.load != action.load) continue;
        load->demand |= action.kind == Action::Kind::kPromote;
        load->cancelled |= action.kind == Action::Kind::kCancel && !load->demand;
      }
      if (action.kind == Action::Kind::kNotify && waiting_.erase(action.entry) > 0) arrived_.push_back(action.entry);
    }
  }

  const Nanos chunk_time_;
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  Nanos now_{0}, routed_{0}, per_layer_{0}, stalled_{0}, chunk_ends_{0};
  uint64_t chunks_ = 0;
  std::vector<std::unique_ptr<Load>> loads_;
  Load* reading_ = nullptr;
  std::set<uint32_t> waiting_;
  std::vector<uint32_t> arrived_;
};

void compare(const char* name, const Routes& routes, bool forecasts_lead) {
  const Routes guessed = partly_right(routes);
  std::printf("%s: stall as a share of computing, and MiB read\n", name);
  std::printf("resident  read   on demand: LRU    interval  foreseen: all       70 %%\n");
  for (const double resident : {0.25, 0.5})
    for (const double read : {0.5, 1.0, 2.0}) {
      const Result lru = Box("lru", resident, read).run(routes, {});
      const Result demand = Box("interval", resident, read).run(routes, {});
      const Result all = Box("interval", resident, read).run(routes, {&routes, 1, true});
      const Result some = Box("interval", resident, read).run(routes, {&guessed, 0.7F, forecasts_lead});
      std::printf("%6.0f %%  %4.1f", resident * 100, read);
      for (const Result& r : {lru, demand, all, some})
        std::printf("  %5.1f %% %6.1f", r.stall * 100, static_cast<double>(r.bytes) / (1 << 20));
      std::printf("\n");
      const std::string at = std::string(name) + " at " + std::to_string(resident) + ", " + std::to_string(read);
      for (const Result& ahead : {all, some}) {
        EXPECT_LE(ahead.stall, demand.stall * 1.005) << at;
        EXPECT_LE(static_cast<double>(ahead.bytes), 1.4 * static_cast<double>(demand.bytes)) << at;
      }
      if (read <= 1) EXPECT_LE(all.stall, 0.4 * demand.stall) << at;
    }
}

TEST(ForesightReplay, OneSequenceThatRepeatsItself) { compare("one sequence", repeating(1), true); }
TEST(ForesightReplay, ExpertsUsedInTurn) { compare("64 sequences", all_in_turn(), false); }

}  // namespace
}  // namespace moestro::store
