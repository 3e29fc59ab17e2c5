// Two models whose experts differ in length, in one real store: a client that holds all the pins that it may have, in
// as many places as it can, keeps the other's from no expert; and segments go over to the model that is used.

#include <gtest/gtest.h>

#include "store/client/status_client.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;

class TwoLengths : public ::testing::Test {
 protected:
  TwoLengths() : small_({.ffn = 100, .experts = 8}), large_({.ffn = 520, .experts = 8}) {}
  StoreOptions options(uint32_t segments) {
    StoreOptions o = store_options(small_, small_.dense_bytes + large_.dense_bytes + segments * large_.expert_bytes);
    o.models = {{"small", small_.dir / "pack"}, {"large", large_.dir / "pack"}};
    return o;
  }
  static std::unique_ptr<StoreClient> attach(const RunningStore& store, const std::string& model) {
    auto client = StoreClient::attach({.endpoint = store.endpoint(), .model = model, .client = model});
    EXPECT_TRUE(client) << client.status().message();
    return client ? std::move(*client) : nullptr;
  }
  static std::vector<Lease> fetch(StoreClient& client, const SmallPack& pack, const std::vector<uint32_t>& blobs) {
    std::vector<Lease> leases;
    EXPECT_TRUE(client.fetch(blobs, {}));
    for (size_t i = 0; i < blobs.size(); ++i) {
      auto arrived = client.next_arrival(kLong);
      EXPECT_TRUE(arrived) << arrived.status().message();
      if (!arrived) return leases;
      EXPECT_TRUE(pack.holds(*arrived));
      leases.push_back(std::move(*arrived));
    }
    return leases;
  }
  static void visit_all(StoreClient& client, const SmallPack& pack) {
    for (const uint32_t blob : pack.experts_list) fetch(client, pack, {blob});
  }
  SmallPack small_, large_;
};

TEST_F(TwoLengths, WhatOneHoldsKeepsTheOtherFromNothing) {
  ASSERT_GT(large_.expert_bytes, 3 * small_.expert_bytes);
  RunningStore store(options(5));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto small = attach(store, "small"), large = attach(store, "large");
  EXPECT_EQ(small->pin_cost(small_.expert_bytes), large->pin_cost(large_.expert_bytes)) << "each counts as a segment";
  visit_all(*large, large_);
  const auto pins = small->share_bytes() / small->pin_cost(small_.expert_bytes);
  ASSERT_GE(pins, 1u);
  const std::vector<uint32_t> first(small_.experts_list.begin(), small_.experts_list.begin() + static_cast<long>(pins));
  const auto held = fetch(*small, small_, first);
  EXPECT_FALSE(small->try_pin(small_.experts_list[pins])) << "more than its share";
  for (int round = 0; round < 2; ++round) visit_all(*large, large_);
  for (const Lease& lease : held) EXPECT_TRUE(small_.holds(lease));
  const auto status = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_GT(status->segments_emptied + status->evictions, 0u);
}

TEST_F(TwoLengths, MemoryGoesOverToTheModelThatIsUsed) {
  RunningStore store(options(5));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto small = attach(store, "small"), large = attach(store, "large");
  visit_all(*large, large_);
  for (int round = 0; round < 30; ++round) visit_all(*small, small_);
  const auto status = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->models[0].resident_experts, small_.experts_list.size());
  EXPECT_GT(status->segments_emptied, 0u);
  EXPECT_EQ(status->policy, "interval");
}

}  // namespace
}  // namespace moestro::store
