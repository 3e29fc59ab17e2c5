// Replays over a host memory that a drive fills: routes small enough to be reckoned by hand, and random ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "common/policy/lru_policy.h"
#include "common/policy/make_policy.h"
#include "common/tier/clairvoyant.h"
#include "common/tier/replay.h"
#include "store/replay/virtual_store.h"

namespace moestro::store {
namespace {

using tier::ReplayReport;
using tier::Routes;

constexpr uint64_t kExpertBytes = 4096;
/// An attention and an expert take kPart each.
constexpr Nanos kPart{4096};

/// Requests of decoded tokens; each token chooses `experts[token][layer]`. The first `prompt` tokens are a prompt's.
Routes routes_of(int32_t experts, const std::vector<std::vector<std::vector<uint16_t>>>& requests, size_t prompt = 0) {
  Routes routes{"test", static_cast<int32_t>(requests[0][0].size()), experts, 1, {}, {}};
  for (size_t r = 0; r < requests.size(); ++r) {
    routes.requests.push_back({r + 1, {}});
    for (size_t t = 0; t < requests[r].size(); ++t) {
      routes.requests[r].tokens.push_back(
          {t >= prompt, static_cast<int32_t>(t), static_cast<uint32_t>(routes.choices.size())});
      routes.choices.insert(routes.choices.end(), requests[r][t].begin(), requests[r][t].end());
    }
  }
  return routes;
}

Routes random_routes(uint64_t seed, int32_t layers, int32_t experts, size_t tokens, size_t prompt = 0) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::vector<uint16_t>>> requests(3);
  const auto n = static_cast<uint64_t>(experts);
  for (auto& request : requests)
    for (size_t t = 0; t < tokens; ++t) {
      auto& token = request.emplace_back();
      for (int32_t l = 0; l < layers; ++l) token.push_back(static_cast<uint16_t>(std::min(random() % n, random() % n)));
    }
  return routes_of(experts, requests, prompt);
}

std::vector<size_t> all_of(const Routes& routes) {
  std::vector<size_t> all(routes.requests.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

/// A read of an expert takes kPart times `read`, and so much more.
struct Drive {
  double read = 1;
  Nanos latency{0};
};

tier::ReplaySetup setup_of(int32_t slots, double copy = 1) {
  tier::ReplaySetup setup;
  setup.slots = slots, setup.expert_bytes = kExpertBytes, setup.chunk_bytes = kExpertBytes / 4;
  setup.times.attention = setup.times.expert = kPart;
  setup.times.link_bytes_per_s = 1e9 / copy;
  return setup;
}

std::unique_ptr<VirtualStore> host_of(const Routes& routes, uint32_t held, const Drive& drive,
                                      const std::string& policy = "lru") {
  const auto experts = static_cast<uint32_t>(routes.layers * routes.experts);
  const VirtualStoreOptions options{.experts = experts, .experts_held = held, .expert_bytes = kExpertBytes,
                                    .chunk_bytes = kExpertBytes / 4, .drive = {1e9 / drive.read, drive.latency}};
  auto made = VirtualStore::create(options, *policy::make_policy(policy, experts));
  EXPECT_TRUE(made.is_ok());
  return std::move(*made);
}

std::unique_ptr<policy::CachePolicy> lru() { return std::make_unique<policy::LruPolicy>(); }

// --- a CPU ---

TEST(HostReplay, OnDemandACpuStallsForEachRead) {
  const Routes routes = routes_of(2, {{{0, 1}, {0, 1}, {1, 1}}});
  const auto host = host_of(routes, 4, {2, Nanos{70}});
  const ReplayReport report = replay_on_cpu(routes, all_of(routes), setup_of(0), {}, *host);
  EXPECT_EQ(report.tokens, 3u);
  EXPECT_EQ(report.uses, 6u);
  EXPECT_EQ(report.hits, 3u);
  EXPECT_EQ(report.stall, 3 * (2 * kPart + Nanos{70}));
  EXPECT_EQ(report.drive_stall, report.stall);
  EXPECT_EQ(report.time, 3 * 4 * kPart + report.stall);
  EXPECT_EQ(report.moved_bytes, 3 * kExpertBytes);
  EXPECT_EQ(report.host.hits, 3u);
  EXPECT_EQ(report.host.misses, 3u);
  EXPECT_EQ(report.host.reads, 3u);
  EXPECT_EQ(report.host.drive_busy, report.stall);
}

TEST(HostReplay, ACpuEvictsWhatItHasNoRoomFor) {
  // Two of three experts fit, and LRU keeps none of a scan.
  const Routes routes = routes_of(3, {{{0}, {1}, {2}, {0}, {1}, {2}}});
  const auto host = host_of(routes, 2, {3});
  const ReplayReport report = replay_on_cpu(routes, all_of(routes), setup_of(0), {}, *host);
  EXPECT_EQ(report.hits, 0u);
  EXPECT_EQ(report.time, 6 * (2 + 3) * kPart);
  EXPECT_EQ(report.host.evictions, 4u);
  EXPECT_EQ(report.host.read_bytes, 6 * kExpertBytes);
}

TEST(HostReplay, APromptReadsEachExpertOnce) {
  std::vector<std::vector<uint16_t>> tokens;
  for (uint16_t t = 0; t < 12; ++t) tokens.push_back({static_cast<uint16_t>(t % 4)});
  const Routes routes = routes_of(4, {tokens}, 8);
  const auto host = host_of(routes, 4, {1});
  const ReplayReport report = replay_on_cpu(routes, all_of(routes), setup_of(0), {}, *host);
  EXPECT_EQ(report.prompt_steps, 1u);
  EXPECT_EQ(report.prompt_uses, 4u);
  EXPECT_EQ(report.prompt_host.read_bytes, 4 * kExpertBytes);
  EXPECT_EQ(report.prompt_moved_bytes, 4 * kExpertBytes);
  // The first read alone is waited for: the others end while an expert of equal length is computed.
  EXPECT_EQ(report.prompt_stall, kPart);
  EXPECT_EQ(report.host.hits, 4u);
  EXPECT_EQ(report.stall, Nanos{0});
}

TEST(HostReplay, ALayerThatDoesNotFitIsReadAsItIsComputed) {
  std::vector<std::vector<uint16_t>> tokens;
  for (uint16_t t = 0; t < 8; ++t) tokens.push_back({t, t});
  const Routes routes = routes_of(8, {tokens}, 8);
  const auto host = host_of(routes, 3, {1});
  const ReplayReport report = replay_on_cpu(routes, all_of(routes), setup_of(0), {}, *host);
  EXPECT_EQ(report.prompt_uses, 16u);
  EXPECT_EQ(report.prompt_host.read_bytes, 16 * kExpertBytes);
}

TEST(HostReplay, WithoutPredictionTheCountsAreTheStoresOwn) {
  for (const char* policy : {"lru", "interval", "lfru"})
    for (const uint32_t held : {4u, 9u, 20u}) {
      const Routes routes = random_routes(3, 4, 8, 60, 10);
      const auto host = host_of(routes, held, {1.5, Nanos{10}}, policy);
      const ReplayReport report = replay_on_cpu(routes, all_of(routes), setup_of(0), {}, *host);
      const StoreMachine::Counters& store = host->machine().counters();
      tier::HostCounters all = report.host;
      all += report.prompt_host;
      EXPECT_EQ(all, host->counters()) << policy << held;
      EXPECT_EQ(all.uses(), report.uses + report.prompt_uses);
      EXPECT_EQ(report.host.hits, report.hits);
      EXPECT_EQ(all.misses, store.fetches);
      EXPECT_EQ(all.reads, store.loads);
      EXPECT_EQ(all.read_bytes, store.loads * kExpertBytes);
      EXPECT_EQ(all.evictions, store.evictions);
      EXPECT_EQ(store.prefetches, 0u);
      EXPECT_EQ(report.time + report.prompt_time,
                report.stall + report.prompt_stall +
                    kPart * static_cast<int64_t>(report.uses + report.prompt_uses +
                                                 4 * (report.steps + report.prompt_steps)));
    }
}

TEST(HostReplay, PerfectPredictionHidesWhatTheDriveCanBring) {
  std::vector<std::vector<uint16_t>> tokens;
  for (uint16_t t = 0; t < 200; ++t)
    tokens.push_back(
        {static_cast<uint16_t>(t % 4), static_cast<uint16_t>((t + 1) % 4), static_cast<uint16_t>((t + 2) % 4)});
  const Routes routes = routes_of(4, {tokens});
  const auto requests = all_of(routes);
  tier::ReplaySetup setup = setup_of(0);
  setup.times.step = 2 * kPart;
  const auto blind = host_of(routes, 6, {0.5}), told = host_of(routes, 6, {0.5});
  const ReplayReport without = replay_on_cpu(routes, requests, setup, {}, *blind);
  const auto perfect = tier::make_perfect_predictor(routes, requests, setup);
  const ReplayReport with = replay_on_cpu(routes, requests, setup, {perfect.get(), {}}, *told);
  EXPECT_EQ(without.hits, 0u);
  EXPECT_EQ(without.stall, 600 * kPart / 2);
  EXPECT_GE(with.hits, 570u) << "at first neither the drive's rate nor a layer's time is known";
  EXPECT_LE(with.stall, without.stall / 20);
  EXPECT_EQ(with.wasted_bytes, 0u);
  EXPECT_EQ(with.host.prefetched_used, with.counters.prefetched);
}

TEST(HostReplay, NothingIsReadAheadIfPrefetchingIsOff) {
  const Routes routes = random_routes(5, 3, 8, 40);
  tier::ReplaySetup setup = setup_of(0);
  setup.prefetch = false;
  const auto perfect = tier::make_perfect_predictor(routes, all_of(routes), setup);
  const auto host = host_of(routes, 8, {1});
  replay_on_cpu(routes, all_of(routes), setup, {perfect.get(), {}}, *host);
  EXPECT_EQ(host->machine().counters().prefetches, 0u);
}

TEST(HostReplay, TheClairvoyantIsNoSlowerThanAny) {
  const Routes routes = random_routes(11, 4, 8, 60);
  const auto requests = all_of(routes);
  for (const uint32_t held : {6u, 12u, 24u}) {
    tier::ReplaySetup as_one = setup_of(static_cast<int32_t>(held));  // the drive as the link
    const tier::Clairvoyant best = clairvoyant(routes, requests, as_one);
    const auto perfect = tier::make_perfect_predictor(routes, requests, as_one);
    for (prediction::Predictor* predictor : {static_cast<prediction::Predictor*>(nullptr), perfect.get()}) {
      const auto host = host_of(routes, held, {1});
      const ReplayReport report = replay_on_cpu(routes, requests, setup_of(0), {predictor, {}}, *host);
      EXPECT_LE(best.total_time, report.time) << held;
      EXPECT_LE(best.least_time, report.time) << held;
    }
  }
}

TEST(HostReplay, TheSameEachTime) {
  const Routes routes = random_routes(7, 4, 8, 40, 6);
  const auto once = [&] {
    const auto host = host_of(routes, 9, {1.3, Nanos{50}}, "interval");
    const auto perfect = tier::make_perfect_predictor(routes, all_of(routes), setup_of(5));
    const ReplayReport r = replay(routes, all_of(routes), setup_of(5), lru(), {perfect.get(), {}}, host.get());
    return std::tuple(r.time, r.stall, r.drive_stall, r.hits, r.moved_bytes, r.host.read_bytes, r.host.evictions);
  };
  EXPECT_EQ(once(), once());
}

// --- a device above host memory ---

TEST(HostReplay, ADeviceWaitsForTheReadAndThenForTheCopy) {
  const Routes routes = routes_of(2, {{{0, 1}, {0, 1}, {1, 1}}});
  const auto host = host_of(routes, 4, {2, Nanos{70}});
  const ReplayReport report = replay(routes, all_of(routes), setup_of(4), lru(), {}, host.get());
  EXPECT_EQ(report.hits, 3u);
  EXPECT_EQ(report.stall, 3 * (2 * kPart + Nanos{70} + kPart));
  EXPECT_EQ(report.drive_stall, report.stall) << "each was read before it could be copied";
  EXPECT_EQ(report.moved_bytes, 3 * kExpertBytes);
  EXPECT_EQ(report.host.read_bytes, 3 * kExpertBytes);
  EXPECT_EQ(report.host.misses, 3u);
}

TEST(HostReplay, WhatHostMemoryHasIsOnlyCopied) {
  // One slot, and both experts fit host memory: after two reads there are copies alone.
  const Routes routes = routes_of(2, {{{0}, {1}, {0}, {1}, {0}, {1}}});
  const auto host = host_of(routes, 2, {5});
  const ReplayReport report = replay(routes, all_of(routes), setup_of(1), lru(), {}, host.get());
  EXPECT_EQ(report.hits, 0u);
  EXPECT_EQ(report.host.hits, 4u);
  EXPECT_EQ(report.host.misses, 2u);
  EXPECT_EQ(report.drive_stall, 2 * 6 * kPart);
  EXPECT_EQ(report.stall - report.drive_stall, 4 * kPart);
  EXPECT_EQ(report.moved_bytes, 6 * kExpertBytes);
  EXPECT_EQ(report.host.read_bytes, 2 * kExpertBytes);
}

/// A drive that takes no time, and room for everything: as if host memory had it all.
TEST(HostReplay, ADriveThatTakesNoTimeChangesNothing) {
  const Routes routes = random_routes(13, 4, 8, 50);
  const ReplayReport alone = replay(routes, all_of(routes), setup_of(7), lru(), {});
  const auto host = host_of(routes, 32, {1e-9});
  const ReplayReport over = replay(routes, all_of(routes), setup_of(7), lru(), {}, host.get());
  EXPECT_EQ(over.hits, alone.hits);
  EXPECT_EQ(over.time, alone.time);
  EXPECT_EQ(over.stall, alone.stall);
  EXPECT_EQ(over.moved_bytes, alone.moved_bytes);
  EXPECT_EQ(over.counters.evictions, alone.counters.evictions);
  EXPECT_EQ(host->counters().reads, 32u);
}

TEST(HostReplay, PredictionHelpsBothTiers) {
  const Routes routes = random_routes(17, 6, 8, 60);
  const auto requests = all_of(routes);
  const auto blind = host_of(routes, 24, {0.5}, "interval"), told = host_of(routes, 24, {0.5}, "interval");
  const ReplayReport without = replay(routes, requests, setup_of(12, 0.5), lru(), {}, blind.get());
  const auto perfect = tier::make_perfect_predictor(routes, requests, setup_of(12));
  const ReplayReport with =
      replay(routes, requests, setup_of(12, 0.5), lru(), {perfect.get(), {}}, told.get());
  EXPECT_LT(with.drive_stall, without.drive_stall / 2);
  EXPECT_LT(with.stall, without.stall / 2);
  EXPECT_GT(with.host.prefetched_used, 0u);
  EXPECT_EQ(told->machine().inconsistency(), "");
}

/// Memories of every size, down to those that are much too small: every replay ends, and no count is lost.
TEST(HostReplay, EveryPairOfSizesEnds) {
  const Routes routes = random_routes(19, 3, 6, 30, 8);
  const auto requests = all_of(routes);
  for (const int32_t slots : {1, 2, 5, 18})
    for (const uint32_t held : {1u, 2u, 5u, 17u})
      for (const double read : {0.25, 4.0}) {
        tier::ReplaySetup setup = setup_of(slots);
        setup.batch = 3;
        const auto perfect = tier::make_perfect_predictor(routes, requests, setup);
        const auto host = host_of(routes, held, {read, Nanos{100}}, "interval");
        const ReplayReport report = replay(routes, requests, setup, lru(), {perfect.get(), {}}, host.get());
        const std::string at = std::to_string(slots) + ", " + std::to_string(held) + ", " + std::to_string(read);
        tier::HostCounters all = report.host;
        all += report.prompt_host;
        EXPECT_EQ(all, host->counters()) << at;
        EXPECT_EQ(report.tokens, 3u * 22) << at;
        EXPECT_LE(report.drive_stall, report.stall) << at;
        EXPECT_EQ(host->machine().inconsistency(), "") << at;
        const auto on_cpu = host_of(routes, held, {read, Nanos{100}}, "interval");
        EXPECT_EQ(replay_on_cpu(routes, requests, setup, {perfect.get(), {}}, *on_cpu).tokens, 3u * 22) << at;
      }
}

}  // namespace
}  // namespace moestro::store
