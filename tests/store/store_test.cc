// A real store with real clients.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "store/client/status_client.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Result<std::unique_ptr<StoreClient>> attach(const RunningStore& store, const std::string& model = "tiny") {
  return StoreClient::attach({.endpoint = store.endpoint(), .model = model, .client = "test"});
}

/// Fetches `blobs` and looks at each arrival's bytes; the lease goes before the next wait.
void fetch_all(StoreClient& client, const SmallPack& pack, const std::vector<uint32_t>& blobs, uint64_t plan) {
  ASSERT_TRUE(client.fetch(blobs, {PlanId(plan), MoeLayerId(0)}));
  std::set<uint32_t> left(blobs.begin(), blobs.end());
  while (!left.empty()) {
    const auto arrived = client.next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    ASSERT_TRUE(pack.holds(*arrived)) << "blob " << arrived->blob();
    ASSERT_EQ(left.erase(arrived->blob()), 1u) << "arrived twice";
  }
}

class StoreTest : public ::testing::TestWithParam<IoKind> {
 protected:
  StoreOptions options(uint32_t slots) {
    StoreOptions o = store_options(pack_, pack_.dram(slots));
    o.io = GetParam();
    return o;
  }
  SmallPack pack_;
};

TEST_P(StoreTest, MissArrivesWholeAndHitsNeedNoStore) {
  RunningStore store(options(16));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto client = attach(store);
  ASSERT_TRUE(client) << client.status().message();
  for (uint32_t blob = 0; blob < pack_.manifest.blobs.size(); ++blob)
    if (pack_.manifest.blobs[blob].kind == BlobKind::kDense) {
      const auto lease = (*client)->try_pin(blob);
      ASSERT_TRUE(lease) << "dense weights are there from the start";
      EXPECT_TRUE(pack_.holds(*lease));
    }
  const uint32_t expert = pack_.experts_list[3];
  EXPECT_FALSE((*client)->try_pin(expert));
  fetch_all(**client, pack_, {expert}, 1);
  const auto before = query_store(store.endpoint(), kLong);
  for (int i = 0; i < 1000; ++i) {
    const auto lease = (*client)->try_pin(expert);
    ASSERT_TRUE(lease);
    EXPECT_FALSE((*client)->try_pin(expert)) << "one lease a blob";
  }
  const auto after = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->fetches, after->fetches);
  EXPECT_EQ((*client)->counters().misses, 1u);
  EXPECT_EQ((*client)->counters().hits, 1000u);
  ASSERT_EQ(after->models.size(), 1u);
  EXPECT_EQ(after->models[0].resident_experts, 1u);
  EXPECT_EQ(after->workers.size(), 1u);
}

/// With a GPU: the arena is mapped for writing until the driver has registered it.
TEST_P(StoreTest, AnArenaToRegisterIsProtectedAfterwards) {
  RunningStore store(options(16));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto other = attach(store);
  ASSERT_TRUE(other) << other.status().message();
  EXPECT_FALSE((*other)->memory_is_writable());
  auto client = StoreClient::attach(
      {.endpoint = store.endpoint(), .model = "tiny", .client = "test", .registers_arena = true});
  ASSERT_TRUE(client) << client.status().message();
  EXPECT_TRUE((*client)->memory_is_writable());
  ASSERT_TRUE((*client)->forbid_writes());
  EXPECT_FALSE((*client)->memory_is_writable());
  fetch_all(**client, pack_, {pack_.experts_list[3]}, 1);
}

TEST_P(StoreTest, TwoClientsShareOneCopy) {
  RunningStore store(options(16));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto a = attach(store), b = attach(store);
  ASSERT_TRUE(a && b);
  const uint32_t expert = pack_.experts_list[5];
  fetch_all(**a, pack_, {expert}, 1);
  const auto lease = (*b)->try_pin(expert);
  ASSERT_TRUE(lease) << "resident through the other worker";
  EXPECT_TRUE(pack_.holds(*lease));
  const auto status = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(status);
  uint64_t packed = 0;
  for (const Blob& blob : pack_.manifest.blobs) packed += blob.kind == BlobKind::kDense;
  EXPECT_EQ(status->loads, packed + 1) << "each blob was read once";
}

TEST_P(StoreTest, APromptThatTouchesEveryExpertDoesNotFlushWhatDecodingUses) {
  RunningStore store(options(6));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto client = attach(store);
  ASSERT_TRUE(client) << client.status().message();
  const std::vector<uint32_t> hot{pack_.experts_list[1], pack_.experts_list[4], pack_.experts_list[6]};
  const auto use = [&](uint32_t expert, UseWeight weight) {
    if ((*client)->try_pin(expert, weight)) return true;
    fetch_all(**client, pack_, {expert}, 1);
    return false;
  };
  for (int token = 0; token < 20; ++token)
    for (const uint32_t expert : hot) use(expert, {});
  for (int chunk = 0; chunk < 4; ++chunk)
    for (const uint32_t expert : pack_.experts_list) use(expert, UseWeight::of(0.25F));
  for (const uint32_t expert : hot) EXPECT_TRUE(use(expert, {})) << expert;
}

TEST_P(StoreTest, ThreeWorkersOnFourSlotsTouchEveryExpert) {
  RunningStore store(options(4));
  ASSERT_TRUE(store.status()) << store.status().message();
  std::vector<std::thread> workers;
  for (int w = 0; w < 3; ++w)
    workers.emplace_back([&, w] {
      auto client = attach(store);
      ASSERT_TRUE(client) << client.status().message();
      std::vector<uint32_t> all = pack_.experts_list;
      for (uint64_t step = 1; step <= 20; ++step) {
        std::rotate(all.begin(), all.begin() + w + 1, all.end());
        fetch_all(**client, pack_, all, step);
      }
    });
  for (std::thread& worker : workers) worker.join();
  const auto status = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_GT(status->evictions, 20u);
}

TEST_P(StoreTest, FlippedByteFailsThatExpertOnly) {
  const uint32_t victim = pack_.experts_list[2];
  const Slice& slice = pack_.manifest.blobs[victim].slices[0];
  {
    std::fstream file(pack_.dir / "pack" / pack_.manifest.files[slice.file],
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(slice.offset + 17));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(slice.offset + 17));
    file.put(static_cast<char>(byte ^ 4));
  }
  RunningStore store(options(16));
  ASSERT_TRUE(store.status()) << store.status().message();
  auto client = attach(store);
  ASSERT_TRUE(client);
  for (int round = 0; round < 2; ++round) {  // the first read, and the verdict that stays
    ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{victim}, {}));
    const auto failed = (*client)->next_arrival(kLong);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.status().code(), Code::kCorrupt);
    EXPECT_EQ((*client)->failed_blob(), victim);
    EXPECT_THAT(failed.status().message(), HasSubstr("model tiny, layer 0, expert 2"));
    EXPECT_THAT(failed.status().message(), HasSubstr("at offset " + std::to_string(slice.offset)));
  }
  fetch_all(**client, pack_, {pack_.experts_list[1], pack_.experts_list[3]}, 2);
  const auto report = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->bad_blobs, 1u);
  EXPECT_EQ(report->unreadable, 1u);
}

TEST_P(StoreTest, CancelledFetchesDoNotArriveAndCanBeAskedAgain) {
  RunningStore store(options(4));
  ASSERT_TRUE(store.status());
  auto client = attach(store);
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->fetch(pack_.experts_list, {}));
  (*client)->cancel_fetches();
  EXPECT_EQ((*client)->next_arrival(milliseconds(1)).status().code(), Code::kUnavailable);
  fetch_all(**client, pack_, pack_.experts_list, 2);
}

TEST_P(StoreTest, LeasesBeyondTheShareAreNotGiven) {
  RunningStore store(options(4));
  ASSERT_TRUE(store.status());
  auto client = attach(store);
  auto other = attach(store);
  ASSERT_TRUE(client && other);
  EXPECT_EQ((*client)->share_bytes(), 2 * pack_.expert_bytes);
  fetch_all(**client, pack_, {pack_.experts_list.begin(), pack_.experts_list.begin() + 3}, 1);
  std::vector<Lease> leases;
  for (int i = 0; i < 2; ++i) {
    auto lease = (*client)->try_pin(pack_.experts_list[static_cast<size_t>(i)]);
    ASSERT_TRUE(lease);
    leases.push_back(std::move(*lease));
  }
  EXPECT_FALSE((*client)->try_pin(pack_.experts_list[2]));
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[2]}, {}));
  const auto stuck = (*client)->next_arrival(milliseconds(100));
  EXPECT_EQ(stuck.status().code(), Code::kExhausted) << "waiting with full hands is an error, not a hang";
  leases.clear();
  EXPECT_TRUE((*client)->next_arrival(kLong));
}

TEST_P(StoreTest, DetachedSlotIsFreeAgain) {
  RunningStore store(options(2));
  ASSERT_TRUE(store.status());
  for (int i = 0; i < 5; ++i) {
    auto a = attach(store), b = attach(store);
    ASSERT_TRUE(a && b) << a.status().message() << b.status().message();
    EXPECT_NE((*a)->slot(), (*b)->slot());
    const auto third = attach(store);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.status().code(), Code::kExhausted);
    EXPECT_THAT(third.status().message(), HasSubstr("raise --dram or run fewer workers"));
    a->reset(), b->reset();
    while (!query_store(store.endpoint(), kLong)->workers.empty()) std::this_thread::yield();
  }
}

TEST_P(StoreTest, ClientsNoticeThatTheStoreHasStopped) {
  RunningStore store(options(4));
  ASSERT_TRUE(store.status());
  auto client = attach(store);
  ASSERT_TRUE(client);
  EXPECT_TRUE((*client)->check());
  store.stop();
  const Status gone = (*client)->check();
  EXPECT_EQ(gone.code(), Code::kUnavailable);
  EXPECT_THAT(gone.message(), HasSubstr("the store at " + store.endpoint() + " has shut down"));
  EXPECT_EQ((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[0]}, {}).code(), Code::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(pack_.arena.path() / "table")) << "it removes its files";
  EXPECT_TRUE(std::filesystem::exists(pack_.arena.path() / "store.lock"));
}

INSTANTIATE_TEST_SUITE_P(Io, StoreTest, ::testing::Values(IoKind::kAuto, IoKind::kPread),
                         [](const auto& kind) { return kind.param == IoKind::kAuto ? "auto" : "pread"; });

TEST(StoreStart, RefusesWhatCannotWork) {
  const SmallPack pack(3);
  const auto status_of = [](const StoreOptions& options) { return RunningStore(options).status(); };
  StoreOptions small = store_options(pack, pack.dense_bytes);
  EXPECT_EQ(status_of(small).code(), Code::kInvalidArgument) << "a size that was asked for stays too small";
  EXPECT_THAT(status_of(small).message(), HasSubstr("raise --dram to at least"));
  StoreOptions missing = store_options(pack, pack.dram(2));
  missing.models[0].pack = pack.dir / "nothing";
  EXPECT_THAT(status_of(missing).message(), HasSubstr("model 'tiny': no pack at"));
  StoreOptions twice = store_options(pack, pack.dram(2));
  twice.models.push_back(twice.models[0]);
  EXPECT_THAT(status_of(twice).message(), HasSubstr("two models are named 'tiny'"));
  StoreOptions none = store_options(pack, pack.dram(2));
  none.models.clear();
  EXPECT_EQ(status_of(none).code(), Code::kInvalidArgument);
}

TEST(StoreStart, DefaultArenaHoldsThePack) {
  const SmallPack pack(3);
  StoreOptions options = store_options(pack, 0);
  options.dram_bytes.reset();
  RunningStore store(options);
  ASSERT_TRUE(store.status()) << store.status().message();
  EXPECT_EQ(query_store(store.endpoint(), kLong)->arena_bytes, pack.dram(6));
}

TEST(StoreStart, TwoNamesOfOnePackShareItsBlobs) {
  const SmallPack pack(3);
  StoreOptions options = store_options(pack, pack.dram(6));
  options.models.push_back({"alias", pack.dir / "pack"});
  RunningStore store(options);
  ASSERT_TRUE(store.status()) << store.status().message();
  auto a = attach(store, "tiny"), b = attach(store, "alias");
  ASSERT_TRUE(a && b);
  fetch_all(**a, pack, {pack.experts_list[0]}, 1);
  EXPECT_TRUE((*b)->try_pin(pack.experts_list[0]));
}

TEST(StoreAttach, RefusalsSayWhatToDo) {
  const SmallPack pack(3);
  RunningStore store(store_options(pack, pack.dram(6)));
  ASSERT_TRUE(store.status());
  const auto unknown = attach(store, "huge");
  EXPECT_EQ(unknown.status().code(), Code::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("it serves tiny"));
  const auto nobody = StoreClient::attach(
      {.endpoint = "ipc://" + (pack.dir / "no.sock").string(), .model = "tiny", .timeout = milliseconds(50)});
  EXPECT_EQ(nobody.status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace moestro::store
