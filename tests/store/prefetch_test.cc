// Reading ahead with a real store and real clients.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "store/client/status_client.h"
#include "tests/store/gated_reader.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20000};

class PrefetchTest : public ::testing::TestWithParam<IoKind> {
 protected:
  void start(uint32_t slots, uint32_t read_depth = 0) {
    StoreOptions options = store_options(pack_, pack_.dram(slots));
    options.read_depth = read_depth;
    options.io = GetParam();
    options.wrap_reader = [this](auto inner) { return std::make_unique<GatedReader>(std::move(inner), gate_); };
    store_ = std::make_unique<RunningStore>(options);
    ASSERT_TRUE(store_->status()) << store_->status().message();
    client_ = attach();
  }
  std::unique_ptr<StoreClient> attach() {
    auto client = StoreClient::attach({.endpoint = store_->endpoint(), .model = "tiny", .client = "test"});
    EXPECT_TRUE(client) << client.status().message();
    return client ? std::move(*client) : nullptr;
  }
  StoreStatusReport status() { return *query_store(store_->endpoint(), kLong); }
  /// So many prefetches have been heard of, and nothing is being read any more.
  StoreStatusReport settled(uint64_t prefetches) {
    StoreStatusReport report = status();
    while (report.reading.prefetches < prefetches || report.queued > 0 || report.loading > 0) report = status();
    return report;
  }
  SmallPack pack_;
  Gate gate_;
  std::unique_ptr<RunningStore> store_;
  std::unique_ptr<StoreClient> client_;
};

TEST_P(PrefetchTest, IsFoundWithoutAFetchAndCountedAsUsed) {
  start(16);
  const std::vector<uint32_t> ahead(pack_.experts_list.begin(), pack_.experts_list.begin() + 5);
  ASSERT_TRUE(client_->prefetch(ahead, {PlanId(1), MoeLayerId(0)}));
  StoreStatusReport report = settled(5);
  EXPECT_EQ(report.workers[0].pinned, pack_.manifest.blobs.size() - pack_.experts_list.size()) << "dense weights alone";
  for (const uint32_t blob : ahead) {
    const auto lease = client_->try_pin(blob);
    ASSERT_TRUE(lease);
    EXPECT_TRUE(pack_.holds(*lease));
  }
  EXPECT_EQ(client_->counters().misses, 0u);
  report = status();
  EXPECT_EQ(report.reading.prefetch_loads, 5u);
  EXPECT_EQ(report.reading.prefetches_used, 5u);
  EXPECT_EQ(report.fetches, pack_.manifest.blobs.size() - pack_.experts_list.size())
      << "nothing was fetched but dense weights";
  ASSERT_EQ(report.reading.drives.size(), 1u);
  EXPECT_EQ(report.reading.drives[0].path, (pack_.dir / "pack").string());
}

TEST_P(PrefetchTest, AHitOnWhatWasReadSinceTheLastUseIsCounted) {
  start(16);
  const uint32_t ahead = pack_.experts_list[0], fetched = pack_.experts_list[1];
  ASSERT_TRUE(client_->prefetch({&ahead, 1}, {PlanId(1), MoeLayerId(0)}));
  settled(1);
  EXPECT_TRUE(client_->try_pin(ahead));
  EXPECT_EQ(client_->counters().brought, 1u);
  EXPECT_TRUE(client_->try_pin(ahead));
  EXPECT_EQ(client_->counters().brought, 1u) << "it has stayed";
  ASSERT_TRUE(client_->fetch({&fetched, 1}, {PlanId(1), MoeLayerId(0)}));
  EXPECT_TRUE(client_->next_arrival(kLong));
  EXPECT_TRUE(client_->try_pin(fetched));
  EXPECT_EQ(client_->counters().brought, 1u) << "it came by this worker's fetch";
  auto other = attach();
  EXPECT_TRUE(other->try_pin(ahead));
  EXPECT_EQ(other->counters().brought, 1u) << "another has brought it";
}

TEST_P(PrefetchTest, FetchesGoOnWhilePrefetchesOfEverythingAreQueued) {
  start(6);
  auto other = attach();
  for (uint64_t plan = 1; plan <= 20; ++plan) {
    ASSERT_TRUE(other->prefetch(pack_.experts_list, {PlanId(plan), MoeLayerId(0)}));
    const std::vector<uint32_t> wanted{pack_.experts_list[plan % 16]};
    if (client_->try_pin(wanted[0])) continue;
    ASSERT_TRUE(client_->fetch(wanted, {PlanId(plan), MoeLayerId(0)}));
    const auto arrived = client_->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
    EXPECT_EQ(arrived->blob(), wanted[0]);
  }
  const StoreReadingReport reading = settled(1).reading;
  EXPECT_GT(reading.prefetch_loads, 0u);
  EXPECT_EQ(reading.prefetches_wasted > 0, reading.prefetch_wasted_bytes > 0);
}

/// One read is under way at a time, and none ends before they are dropped.
TEST_P(PrefetchTest, DroppedLayersLeaveTheQueue) {
  start(16, 1);
  gate_.close();
  ASSERT_TRUE(client_->prefetch(pack_.experts_list, {PlanId(3), MoeLayerId(1)}));
  ASSERT_TRUE(client_->prefetch(std::vector{pack_.experts_list[0]}, {PlanId(4), MoeLayerId(1)}));
  const std::array layers{MoeLayerId(0), MoeLayerId(1)};
  ASSERT_TRUE(client_->drop_prefetches(PlanId(3), layers));
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (status().reading.prefetches_dropped + 1 < pack_.experts_list.size() &&
         std::chrono::steady_clock::now() < deadline) {}
  gate_.open();
  StoreStatusReport report = settled(pack_.experts_list.size());
  EXPECT_EQ(report.reading.prefetches_dropped, pack_.experts_list.size() - 1);
  EXPECT_EQ(report.models[0].resident_experts, 1u) << "the one that a later plan wants too";
  ASSERT_TRUE(client_->fetch(pack_.experts_list, {PlanId(4), MoeLayerId(0)}));
  for (size_t i = 0; i < pack_.experts_list.size(); ++i) {
    const auto arrived = client_->next_arrival(kLong);
    ASSERT_TRUE(arrived) << "what was dropped can be had all the same: " << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
  }
}

/// Half of them are likely; nobody asks for them by name.
TEST_P(PrefetchTest, WhatIsForeseenIsReadAhead) {
  start(16);
  std::vector<Foreseen> experts;
  for (size_t i = 0; i < 8; ++i)
    experts.push_back({pack_.experts_list[i], i % 2 == 0 ? 0.9F : 0.1F, std::chrono::seconds(60)});
  ASSERT_TRUE(client_->foresee({.experts = experts}));
  const StoreStatusReport report = settled(4);
  EXPECT_EQ(report.reading.prefetch_loads, 4u);
  EXPECT_EQ(report.reading.foreseen_below_floor, 4u);
  for (size_t i = 0; i < 8; ++i) {
    const auto lease = client_->try_pin(pack_.experts_list[i]);
    EXPECT_EQ(lease.has_value(), i % 2 == 0) << i;
    if (lease) EXPECT_TRUE(pack_.holds(*lease));
  }
  EXPECT_EQ(status().reading.prefetches_used, 4u);
}

TEST_P(PrefetchTest, OutlookEndsWithTheNextOneAndWithItsWorker) {
  start(16, 1);
  auto other = attach();
  gate_.close();
  const std::vector<Foreseen> all{{pack_.experts_list[0], 1, std::chrono::seconds(60)},
                                  {pack_.experts_list[1], 1, std::chrono::seconds(60)}};
  ASSERT_TRUE(client_->foresee({.experts = all}));
  ASSERT_TRUE(other->foresee({.experts = std::span(all).first(1)}));
  ASSERT_TRUE(client_->foresee({}));
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (status().reading.prefetches_dropped < 1 && std::chrono::steady_clock::now() < deadline) {}
  other.reset();
  while (status().reading.prefetches_dropped < 2 && std::chrono::steady_clock::now() < deadline) {}
  EXPECT_EQ(status().reading.prefetches_dropped, 2u);
  gate_.open();
  settled(1);
}

TEST_P(PrefetchTest, ClientSendsOnlyWhatAStoreTakes) {
  start(16);
  const uint32_t blob = pack_.experts_list[0];
  EXPECT_EQ(client_->foresee({.experts = std::array{Foreseen{100000, 1, {}}}}).code(), Code::kInvalidArgument);
  const float odd[] = {NAN, -1, 7, INFINITY, -INFINITY};
  for (const float probability : odd)
    for (const Nanos due : {Nanos::min(), Nanos(-1), Nanos::max()})
      ASSERT_TRUE(client_->foresee({.experts = std::array{Foreseen{blob, probability, due}}}));
  const std::vector<Foreseen> many(Outlook::kExpertsMax + 500, Foreseen{blob, 1, std::chrono::seconds(1)});
  ASSERT_TRUE(client_->foresee({.experts = many}));
  EXPECT_EQ(settled(1).refused, 0u);
}

TEST_P(PrefetchTest, RubbishIsRefusedHereAndThere) {
  start(16);
  EXPECT_EQ(client_->prefetch(std::vector<uint32_t>{100000}, {}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(client_->prefetch({}, {}));
  EXPECT_TRUE(client_->steer_prefetches(PlanId(1), {}));
  EXPECT_TRUE(client_->steer_prefetches(PlanId(UINT64_MAX), std::array{PrefetchRank{MoeLayerId(UINT32_MAX), 3}}));
  for (uint64_t plan = 1; plan <= 50; ++plan)
    ASSERT_TRUE(client_->prefetch(std::vector<uint32_t>{pack_.experts_list[0]}, {PlanId(plan), MoeLayerId(0)}));
  EXPECT_EQ(settled(1).reading.prefetches, 1u) << "one blob, however often it is asked for";
}

INSTANTIATE_TEST_SUITE_P(Io, PrefetchTest, ::testing::Values(IoKind::kAuto, IoKind::kPread),
                         [](const auto& kind) { return kind.param == IoKind::kAuto ? "auto" : "pread"; });

}  // namespace
}  // namespace moestro::store
