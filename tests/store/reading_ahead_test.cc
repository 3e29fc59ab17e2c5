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
constexpr std::chrono::seconds kDue{60};

class ReadingAhead : public ::testing::TestWithParam<IoKind> {
 protected:
  void start(uint32_t slots, uint32_t read_depth = 0, uint32_t read_chunk = 0) {
    StoreOptions options = store_options(pack_, pack_.dram(slots));
    options.read_depth = read_depth, options.read_chunk = read_chunk;
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
  /// All of them are certain to be used.
  static std::vector<Foreseen> certain(std::span<const uint32_t> blobs) {
    std::vector<Foreseen> experts;
    for (const uint32_t blob : blobs) experts.push_back({blob, 1, kDue});
    return experts;
  }
  StoreStatusReport status() { return *query_store(store_->endpoint(), kLong); }
  /// So many reads ahead have begun, and nothing is being read any more.
  StoreStatusReport settled(uint64_t prefetches) {
    StoreStatusReport report = status();
    while (report.reading.prefetches < prefetches || report.queued > 0 || report.loading > 0) report = status();
    return report;
  }
  /// So many reads ahead have been cancelled.
  void wait_for_dropped(uint64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (status().reading.prefetches_dropped < count && std::chrono::steady_clock::now() < deadline) {}
    EXPECT_EQ(status().reading.prefetches_dropped, count);
  }
  SmallPack pack_;
  Gate gate_;
  std::unique_ptr<RunningStore> store_;
  std::unique_ptr<StoreClient> client_;
};

TEST_P(ReadingAhead, IsFoundWithoutAFetchAndCountedAsUsed) {
  start(16);
  const std::vector<uint32_t> ahead(pack_.experts_list.begin(), pack_.experts_list.begin() + 5);
  ASSERT_TRUE(client_->foresee({.experts = certain(ahead)}));
  StoreStatusReport report = settled(5);
  EXPECT_EQ(report.workers[0].pinned, pack_.manifest.blobs.size() - pack_.experts_list.size()) << "dense weights alone";
  for (const uint32_t blob : ahead) {
    const auto lease = client_->try_pin(blob);
    ASSERT_TRUE(lease);
    EXPECT_TRUE(pack_.holds(*lease));
  }
  EXPECT_EQ(client_->counters().misses, 0u);
  report = status();
  EXPECT_EQ(report.reading.prefetches, 5u);
  EXPECT_EQ(report.reading.prefetches_used, 5u);
  EXPECT_EQ(report.fetches, pack_.manifest.blobs.size() - pack_.experts_list.size())
      << "nothing was fetched but dense weights";
  ASSERT_EQ(report.reading.drives.size(), 1u);
  EXPECT_EQ(report.reading.drives[0].path, (pack_.dir / "pack").string());
}

TEST_P(ReadingAhead, AHitOnWhatWasReadSinceTheLastUseIsCounted) {
  start(16);
  const uint32_t ahead = pack_.experts_list[0], fetched = pack_.experts_list[1];
  ASSERT_TRUE(client_->foresee({.experts = certain({&ahead, 1})}));
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

TEST_P(ReadingAhead, FetchesGoOnWhileEverythingIsForeseen) {
  start(6);
  auto other = attach();
  const std::vector<Foreseen> all = certain(pack_.experts_list);
  for (uint64_t plan = 1; plan <= 20; ++plan) {
    ASSERT_TRUE(other->foresee({.experts = all, .scan = plan % 2 == 0}));
    const std::vector<uint32_t> wanted{pack_.experts_list[plan % 16]};
    if (client_->try_pin(wanted[0])) continue;
    ASSERT_TRUE(client_->fetch(wanted, {PlanId(plan), MoeLayerId(0)}));
    const auto arrived = client_->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
    EXPECT_EQ(arrived->blob(), wanted[0]);
  }
  EXPECT_GT(settled(1).reading.prefetches, 0u);
}

/// A demand arrives while the drive has its first reads ahead, and they do not end before it has been given the demand.
TEST_P(ReadingAhead, ADemandIsGivenToTheDriveBeforeTheRestOfReadsAhead) {
  start(16, 1);
  gate_.close();
  const std::span<const uint32_t> ahead = std::span(pack_.experts_list).first(6);
  const uint32_t wanted = pack_.experts_list[9];
  const size_t before = gate_.submitted().size();
  ASSERT_TRUE(client_->foresee({.experts = certain(ahead)}));
  while (gate_.submitted().size() == before) {}
  ASSERT_TRUE(client_->fetch({&wanted, 1}, {PlanId(1), MoeLayerId(0)}));
  while (status().loading < 3) {}  // two ahead, and the demand
  gate_.open();
  auto arrived = client_->next_arrival(kLong);
  ASSERT_TRUE(arrived) << arrived.status().message();
  settled(6);
  const Slice& slice = pack_.manifest.blobs[wanted].slices.front();
  const std::vector<ReadOp> reads = gate_.submitted();
  const auto demanded = std::ranges::find_if(reads, [&](const ReadOp& op) {
    return op.file == slice.file && op.offset <= slice.offset && slice.offset < op.offset + op.length;
  });
  EXPECT_EQ(demanded - reads.begin(), static_cast<std::ptrdiff_t>(before + 1)) << "after the one that was under way";
}

/// One page is being read at a time, and the first does not arrive before they are cancelled. It was read for nothing.
TEST_P(ReadingAhead, WhatIsNoLongerForeseenIsNotRead) {
  constexpr uint32_t kPage = 4096;
  start(16, 1, kPage);
  const uint64_t before = status().bytes_read;
  const size_t reads_before = gate_.submitted().size();
  gate_.close();
  const std::vector<Foreseen> all = certain(pack_.experts_list);
  ASSERT_TRUE(client_->foresee({.experts = all}));
  while (gate_.submitted().size() == reads_before) {}
  ASSERT_TRUE(client_->foresee({.experts = std::span(all).last(1)}));
  wait_for_dropped(2);  // that were begun
  gate_.open();
  const StoreStatusReport report = settled(3);
  EXPECT_EQ(report.models[0].resident_experts, 1u) << "the one that is still foreseen";
  EXPECT_EQ(report.reading.prefetches_wasted, 0u) << "none was there to be evicted";
  EXPECT_EQ(report.reading.prefetch_wasted_bytes, kPage);
  EXPECT_EQ(report.bytes_read - before, pack_.expert_bytes + kPage);
  ASSERT_TRUE(client_->fetch(pack_.experts_list, {PlanId(4), MoeLayerId(0)}));
  for (size_t i = 0; i < pack_.experts_list.size(); ++i) {
    const auto arrived = client_->next_arrival(kLong);
    ASSERT_TRUE(arrived) << "what was cancelled can be had all the same: " << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
  }
}

/// Half of them are likely; nobody asks for them by name.
TEST_P(ReadingAhead, WhatIsForeseenIsReadAhead) {
  start(16);
  std::vector<Foreseen> experts;
  for (size_t i = 0; i < 8; ++i)
    experts.push_back({pack_.experts_list[i], i % 2 == 0 ? 0.9F : 0.1F, kDue});
  ASSERT_TRUE(client_->foresee({.experts = experts}));
  const StoreStatusReport report = settled(4);
  EXPECT_EQ(report.reading.prefetches, 4u);
  EXPECT_EQ(report.reading.foreseen_below_floor, 4u);
  for (size_t i = 0; i < 8; ++i) {
    const auto lease = client_->try_pin(pack_.experts_list[i]);
    EXPECT_EQ(lease.has_value(), i % 2 == 0) << i;
    if (lease) EXPECT_TRUE(pack_.holds(*lease));
  }
  EXPECT_EQ(status().reading.prefetches_used, 4u);
}

TEST_P(ReadingAhead, OutlookEndsWithTheNextOneAndWithItsWorker) {
  start(16, 1);
  auto other = attach();
  gate_.close();
  const std::vector<Foreseen> all = certain(std::span(pack_.experts_list).first(2));
  ASSERT_TRUE(other->foresee({.experts = std::span(all).first(1)}));
  while (status().reading.prefetches < 1) {}  // before the other's words
  ASSERT_TRUE(client_->foresee({.experts = all}));
  ASSERT_TRUE(client_->foresee({}));
  wait_for_dropped(1);
  other.reset();
  wait_for_dropped(2);
  gate_.open();
  settled(1);
}

TEST_P(ReadingAhead, ClientSendsOnlyWhatAStoreTakes) {
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

INSTANTIATE_TEST_SUITE_P(Io, ReadingAhead, ::testing::Values(IoKind::kAuto, IoKind::kPread),
                         [](const auto& kind) { return kind.param == IoKind::kAuto ? "auto" : "pread"; });

}  // namespace
}  // namespace moestro::store
