// Packs with equal contents in one real store: one copy, whichever model asks, whichever pack it is read from.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "store/client/status_client.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;

/// Same weights as the other small packs but in layer 1, which has `differs` added.
testing::CheckpointOptions variant(float differs) {
  testing::CheckpointOptions options{.experts = 8};
  options.value = [differs](const std::string& tensor, int64_t index) {
    return testing::synthetic_value(tensor, index) + (tensor.find("layers.1.") != std::string::npos ? differs : 0.0F);
  };
  return options;
}

class SharedPacks : public ::testing::Test {
 protected:
  SharedPacks() : a_(variant(0)), b_(variant(0.25F)) {}
  StoreOptions options(uint32_t slots) {
    StoreOptions o = store_options(a_, a_.dense_bytes + b_.dense_bytes + slots * a_.expert_bytes);
    o.models = {{"a", a_.dir / "pack"}, {"b", b_.dir / "pack"}};
    return o;
  }
  static std::unique_ptr<StoreClient> attach(const RunningStore& store, const std::string& model) {
    auto client = StoreClient::attach({.endpoint = store.endpoint(), .model = model, .client = model});
    EXPECT_TRUE(client) << client.status().message();
    return client ? std::move(*client) : nullptr;
  }
  static void fetch_all(StoreClient& client, const SmallPack& pack, const std::vector<uint32_t>& blobs) {
    ASSERT_TRUE(client.fetch(blobs, {}));
    for (size_t i = 0; i < blobs.size(); ++i) {
      const auto arrived = client.next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
      ASSERT_TRUE(pack.holds(*arrived)) << "blob " << arrived->blob();
    }
  }
  /// A worker of `model` attaches and uses every expert: nothing is read, nothing is asked for.
  static void expect_all_there(const RunningStore& store, const std::string& model, const SmallPack& pack) {
    const auto before = query_store(store.endpoint(), kLong);
    auto client = attach(store, model);
    for (const uint32_t expert : pack.experts_list) {
      const auto lease = client->try_pin(expert);
      ASSERT_TRUE(lease) << expert;
      EXPECT_TRUE(pack.holds(*lease)) << expert;
    }
    const auto after = query_store(store.endpoint(), kLong);
    EXPECT_EQ(after->bytes_read, before->bytes_read);
    EXPECT_EQ(after->loads, before->loads);
  }
  SmallPack a_, b_;
};

TEST_F(SharedPacks, EqualExpertsAndDenseWeightsAreOneCopy) {
  RunningStore store(options(32));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto a = attach(store, "a");
  fetch_all(*a, a_, a_.experts_list);
  const uint64_t alone = query_store(store.endpoint(), kLong)->resident_bytes;
  auto b = attach(store, "b");
  fetch_all(*b, b_, b_.experts_list);
  const auto both = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(both);
  uint64_t of_layer_1 = 0;  // of b: all that is its own
  for (uint32_t blob = 0; blob < b_.contents.size(); ++blob)
    of_layer_1 += b_.contents[blob] != a_.contents[blob] ? b_.contents[blob].size() : 0;
  EXPECT_EQ(both->resident_bytes, alone + of_layer_1);
  EXPECT_GE(both->aliases, 8u + 1u) << "the experts of layer 0, and dense weights";
  for (const uint32_t expert : a_.experts_list) {  // and hits from now on
    const auto in_a = a->try_pin(expert), in_b = b->try_pin(expert);
    ASSERT_TRUE(in_a && in_b);
    EXPECT_TRUE(a_.holds(*in_a) && b_.holds(*in_b));
  }
}

TEST_F(SharedPacks, UnderEvictionEveryArrivalHasTheRightBytes) {
  RunningStore store(options(6));
  ASSERT_TRUE(store.status()) << store.status().message();
  std::vector<std::thread> workers;
  for (const bool first : {true, false, true})
    workers.emplace_back([&, first] {
      const SmallPack& pack = first ? a_ : b_;
      auto client = attach(store, first ? "a" : "b");
      std::vector<uint32_t> all = pack.experts_list;
      for (int step = 0; step < 25 && !HasFatalFailure(); ++step) {
        std::rotate(all.begin(), all.begin() + 3, all.end());
        fetch_all(*client, pack, all);
      }
    });
  for (std::thread& worker : workers) worker.join();
  EXPECT_GT(query_store(store.endpoint(), kLong)->evictions, 20u);
}

TEST_F(SharedPacks, WhereOnePackIsDamagedTheOtherServes) {
  StoreOptions by_recency = options(2);
  by_recency.policy = "lru";  // so that what others bring in drives it out, often used as it is
  RunningStore store(by_recency);
  ASSERT_TRUE(store.status()) << store.status().message();
  auto a = attach(store, "a");
  const uint32_t expert = a_.experts_list[2];
  fetch_all(*a, a_, {expert});
  {
    auto b = attach(store, "b");
    fetch_all(*b, b_, {b_.experts_list[2], b_.experts_list[10], b_.experts_list[11], b_.experts_list[12]});
  }
  const Slice& slice = a_.manifest.blobs[expert].slices[0];
  std::fstream file(a_.dir / "pack" / a_.manifest.files[slice.file], std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(slice.offset));
  file << "damage";
  file.close();
  fetch_all(*a, a_, {a_.experts_list[13], a_.experts_list[14], a_.experts_list[15], expert});
  const auto status = query_store(store.endpoint(), kLong);
  EXPECT_GE(status->reads_elsewhere, 1u);
  EXPECT_EQ(status->bad_blobs, 0u);
}

TEST_F(SharedPacks, AnInstanceOfTheSamePackReadsNothing) {
  RunningStore store(options(32));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto first = attach(store, "a");
  fetch_all(*first, a_, a_.experts_list);
  expect_all_there(store, "a", a_);
}

TEST_F(SharedPacks, AnInstanceOfAnotherNameReadsNothing) {
  StoreOptions o = options(32);
  o.models = {{"a", a_.dir / "pack"}, {"again", a_.dir / "pack"}};
  RunningStore store(o);
  ASSERT_TRUE(store.status()) << store.status().message();
  auto first = attach(store, "a");
  fetch_all(*first, a_, a_.experts_list);
  expect_all_there(store, "again", a_);
}

/// Its files lie elsewhere, and its manifest is a file of its own: all that it has in common with the first are the
/// bytes.
TEST_F(SharedPacks, AnInstanceFromAnotherPackWithEqualExpertsReadsNothing) {
  const SmallPack copy(variant(0));
  StoreOptions o = options(32);
  o.models = {{"a", a_.dir / "pack"}, {"copy", copy.dir / "pack"}};
  RunningStore store(o);
  ASSERT_TRUE(store.status()) << store.status().message();
  auto first = attach(store, "a");
  fetch_all(*first, a_, a_.experts_list);
  expect_all_there(store, "copy", copy);
}

/// What two packs do not share is read, for the second one, and is its own.
TEST_F(SharedPacks, OfAPackWithSomeEqualExpertsOnlyTheOthersAreRead) {
  RunningStore store(options(32));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto first = attach(store, "a");
  fetch_all(*first, a_, a_.experts_list);
  const uint64_t before = query_store(store.endpoint(), kLong)->bytes_read;
  auto second = attach(store, "b");
  fetch_all(*second, b_, b_.experts_list);
  uint64_t own = 0;
  for (uint32_t blob = 0; blob < b_.contents.size(); ++blob)
    own += b_.contents[blob] != a_.contents[blob] ? b_.contents[blob].size() : 0;
  ASSERT_GT(own, 0u);
  EXPECT_EQ(query_store(store.endpoint(), kLong)->bytes_read, before + own);
}

TEST(EqualExpertsWithinAModel, AreOneCopyThatEachLeaseKeeps) {
  testing::CheckpointOptions options{.experts = 4};
  options.value = [](std::string tensor, int64_t index) {  // expert 2 is expert 1
    if (const auto at = tensor.find("experts.2."); at != std::string::npos) tensor.replace(at, 10, "experts.1.");
    return testing::synthetic_value(tensor, index);
  };
  const SmallPack pack(options);
  ASSERT_EQ(pack.contents[pack.experts_list[1]], pack.contents[pack.experts_list[2]]);
  RunningStore store(store_options(pack, pack.dram(4)));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto client = StoreClient::attach({.endpoint = store.endpoint(), .model = "tiny"});
  ASSERT_TRUE(client) << client.status().message();
  std::vector<Lease> leases;
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack.experts_list[1], pack.experts_list[2]}, {}));
  for (int i = 0; i < 2; ++i) {
    auto arrived = (*client)->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack.holds(*arrived));
    leases.push_back(std::move(*arrived));
  }
  EXPECT_EQ(leases[0].data(), leases[1].data());
  leases.erase(leases.begin());  // the other one still pins it, whatever else is fetched
  std::vector<uint32_t> others = pack.experts_list;
  std::erase(others, pack.experts_list[1]), std::erase(others, pack.experts_list[2]);
  for (const uint32_t other : others) {
    ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{other}, {}));
    ASSERT_TRUE((*client)->next_arrival(kLong));
    ASSERT_TRUE(pack.holds(leases[0]));
  }
}

}  // namespace
}  // namespace moestro::store
