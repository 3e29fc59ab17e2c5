// What reading ahead is worth, on a virtual clock (store/replay): one worker computes layer after layer, one drive
// reads chunk by chunk, and the machine decides. Prints a table of stalls and bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "common/policy/make_policy.h"
#include "store/replay/virtual_store.h"

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

/// Three of them at once.
Routes three_repeating() {
  Routes all = repeating(1);
  for (const uint64_t seed : {2, 3}) {
    const Routes more = repeating(seed);
    for (size_t step = 0; step < all.size(); ++step)
      for (uint32_t layer = 0; layer < kLayers; ++layer)
        for (const uint32_t expert : more[step][layer])
          if (auto& used = all[step][layer]; std::ranges::find(used, expert) == used.end()) used.push_back(expert);
  }
  return all;
}

/// So many sequences that each layer uses every expert.
Routes all_in_turn() {
  std::vector<uint32_t> all(kPerLayer);
  for (uint32_t expert = 0; expert < kPerLayer; ++expert) all[expert] = expert;
  return Routes(kSteps + kLayers, std::vector(kLayers, all));
}

/// Of each choice, each expert is as likely as any other.
Routes by_chance(uint64_t seed) {
  std::mt19937_64 random(seed);
  Routes routes(kSteps + kLayers, std::vector<std::vector<uint32_t>>(kLayers));
  for (auto& step : routes)
    for (auto& chosen : step) {
      chosen.push_back(static_cast<uint32_t>(random() % kPerLayer));
      chosen.push_back(static_cast<uint32_t>((chosen[0] + 1 + random() % (kPerLayer - 1)) % kPerLayer));
    }
  return routes;
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
  Box(const std::string& policy, double resident, double read_per_compute) {
    VirtualStoreOptions options;
    options.experts = kLayers * kPerLayer;
    options.experts_held = static_cast<uint32_t>(resident * options.experts);
    options.expert_bytes = kBlob, options.chunk_bytes = kChunk;
    options.drive.bytes_per_s = 1e9 * kBlob / (read_per_compute * static_cast<double>(kCompute.count()));
    store_ = std::move(*VirtualStore::create(options, *policy::make_policy(policy, options.experts)));
  }

  Result run(const Routes& routes, const Foreseer& foreseer) {
    Nanos computed{0};
    uint64_t bytes_before = 0;
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (step == kWarmSteps) stalled_ = computed = Nanos{0}, bytes_before = store_->counters().read_bytes;
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
    return {static_cast<double>(stalled_.count()) / static_cast<double>(computed.count()),
            store_->counters().read_bytes - bytes_before};
  }

 private:
  void use(uint32_t layer, const std::vector<uint32_t>& experts, const Foreseer& foreseer, uint32_t step) {
    std::vector<tier::Key> present, absent;
    for (const uint32_t expert : experts) {
      const tier::Key key = layer * kPerLayer + expert;
      (store_->try_pin(key, 1) == tier::Found::kHit ? present : absent).push_back(key);
    }
    if (!absent.empty()) store_->fetch(absent, step, static_cast<int32_t>(layer));
    if (foreseer.routes != nullptr) foresee(layer, step, foreseer);
    for (const tier::Key key : present) compute(key);
    for (size_t left = absent.size(); left > 0; --left) {
      const Nanos before = now_;
      std::optional<tier::Key> key;
      while (!(key = store_->take_arrival())) {
        const auto next = store_->next_event();
        ASSERT_TRUE(next) << "nothing will ever happen";
        store_->advance(now_ = std::max(now_, *next));
      }
      stalled_ += now_ - before;
      compute(*key);
    }
  }

  void compute(tier::Key key) {
    pass(kCompute);
    store_->unpin(key);
  }

  /// The next pass of every layer.
  void foresee(uint32_t layer, uint32_t step, const Foreseer& foreseer) {
    std::vector<tier::ForeseenKey> experts;
    for (uint32_t ahead = 1; ahead <= kLayers; ++ahead) {
      const uint32_t target = (layer + ahead) % kLayers;
      for (const uint32_t expert : (*foreseer.routes)[step + (target > layer ? 0 : 1)][target])
        experts.push_back({target * kPerLayer + expert, foreseer.probability, per_layer_ * ahead});
    }
    store_->foresee(experts, false, foreseer.leads);
  }

  void pass(Nanos time) { store_->advance(now_ += time); }

  std::unique_ptr<VirtualStore> store_;
  Nanos now_{0}, routed_{0}, per_layer_{0}, stalled_{0};
};

void compare(const char* name, const Routes& routes, bool forecasts_lead) {
  const Routes guessed = partly_right(routes);
  std::printf("%s: stall as a share of computing, and MiB read\n", name);
  std::printf("resident  read   on demand: LRU    interval  foreseen: all       70 %%\n");
  for (const double resident : {0.25, 0.5})
    for (const double read : {0.5, 1.0, 2.0, 4.0}) {
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
        EXPECT_LE(1 + ahead.stall, (1 + demand.stall) * 1.005) << at << ": how long all took";
        EXPECT_LE(static_cast<double>(ahead.bytes), 1.4 * static_cast<double>(demand.bytes)) << at;
      }
      if (read <= 1) EXPECT_LE(all.stall, 0.4 * demand.stall) << at;
    }
}

TEST(ForesightReplay, OneSequenceThatRepeatsItself) { compare("one sequence", repeating(1), true); }
TEST(ForesightReplay, ThreeSequencesThatRepeatThemselves) { compare("3 sequences", three_repeating(), true); }
TEST(ForesightReplay, ExpertsUsedInTurn) { compare("64 sequences", all_in_turn(), false); }

/// Guesses are right as often as they claim, a quarter of the time. Each costs what a demand waits for its chunk.
TEST(ForesightReplay, WhatNobodyCanForeseeIsNoSlowerForTrying) {
  const Routes routes = by_chance(1), guessed = by_chance(2);
  for (const double read : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    const Result demand = Box("interval", 0.25, read).run(routes, {});
    const Result ahead = Box("interval", 0.25, read).run(routes, {&guessed, 0.25F, false});
    std::printf("a read takes %4.1f: %.3f of the time of on demand, %.2f of the bytes\n", read,
                (1 + ahead.stall) / (1 + demand.stall),
                static_cast<double>(ahead.bytes) / static_cast<double>(demand.bytes));
    EXPECT_LE(1 + ahead.stall, 1.005 * (1 + demand.stall)) << read;
  }
}

}  // namespace
}  // namespace moestro::store
