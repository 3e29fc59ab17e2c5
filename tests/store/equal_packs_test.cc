// Packs of equal bytes that go bad, are put right, and go, while reads, leases and a warm start depend on them: real
// stores and clients.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/shm/mapped_file.h"
#include "store/client/status_client.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;

testing::CheckpointOptions large(float shift) { return {.hidden = 512, .ffn = 1024, .experts = 8, .shift = shift}; }

class EqualPacks : public ::testing::Test {
 protected:
  void start(const StoreOptions& options) {
    store_ = std::make_unique<RunningStore>(options);
    ASSERT_TRUE(store_->status()) << store_->status().message();
  }
  std::unique_ptr<StoreClient> attach(const std::string& model) {
    auto client = StoreClient::attach({.endpoint = store_->endpoint(), .model = model, .client = model});
    EXPECT_TRUE(client) << client.status().message();
    return client ? std::move(*client) : nullptr;
  }
  StoreStatusReport status() { return *query_store(store_->endpoint(), kLong); }
  Result<std::string> change(PackChange kind, const std::string& name, const std::filesystem::path& pack = {}) {
    return change_packs(store_->endpoint(), kind, name, pack.string(), kLong);
  }
  static void use(StoreClient& client, const SmallPack& pack, uint32_t blob) {
    ASSERT_TRUE(client.fetch(std::vector<uint32_t>{blob}, {}));
    const auto arrived = client.next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    ASSERT_TRUE(pack.holds(*arrived)) << "blob " << blob;
  }
  static void use_all(StoreClient& client, const SmallPack& pack) {
    for (const uint32_t blob : pack.experts_list) use(client, pack, blob);
  }
  static uint32_t first_dense(const SmallPack& pack) {
    uint32_t blob = 0;
    while (pack.manifest.blobs[blob].kind != BlobKind::kDense) ++blob;
    return blob;
  }
  static void damage_file(const SmallPack& pack, uint32_t blob) {
    const Slice& slice = pack.manifest.blobs[blob].slices[0];
    std::fstream file(pack.dir / "pack" / pack.manifest.files[slice.file],
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(slice.offset + 200));
    file << "damage";
    ASSERT_TRUE(file.good());
  }
  std::unique_ptr<RunningStore> store_;
};

/// Model a's dense weights have changed in memory and on the drive. An equal pack comes, while a's worker still has
/// them leased: it mends them where they lie, and nothing else ever lies there.
TEST_F(EqualPacks, DenseWeightsThatAreBadKeepTheirPlaceUnderALease) {
  const SmallPack a, copy;
  StoreOptions options = store_options(a, a.dense_bytes + copy.dense_bytes + 4 * a.expert_bytes);
  options.models = {{"a", a.dir / "pack"}, {"copy", copy.dir / "pack"}};
  options.scrub_bytes_per_s = 1ULL << 30;
  start(options);
  const auto client = attach("a");
  ASSERT_TRUE(client);
  const uint32_t dense = first_dense(a);
  const auto lease = client->try_pin(dense);
  ASSERT_TRUE(lease);
  damage_file(a, dense);
  auto arena = shm::MappedFile::open(a.arena.path() / "arena", shm::MappedFile::Access::kReadWrite, 1);
  ASSERT_TRUE(arena);
  arena->data()[lease->data() - client->memory().data() + 100] ^= std::byte{8};
  while (status().bad_blobs == 0) {}

  const auto other = attach("copy");
  ASSERT_TRUE(other);
  for (int round = 0; round < 3; ++round) use_all(*other, copy);
  while (status().loading > 0) {}
  const auto& right = a.contents[dense];
  size_t wrong = 0;
  for (size_t i = 0; i < right.size(); ++i) wrong += lease->data()[i] != right[i];
  EXPECT_EQ(wrong, 0u) << "of " << right.size() << " bytes under the lease";
  EXPECT_TRUE(attach("a")) << "whoever comes now finds them";
}

/// A read that was turned to another pack goes on while that pack is put right and goes; then it fails.
TEST_F(EqualPacks, APackThatIsBeingReadForAnotherStaysUntilThatReadHasEnded) {
  const SmallPack a, copy;
  StoreOptions options = store_options(a, a.dense_bytes + copy.dense_bytes + 2 * a.expert_bytes);
  options.models = {{"a", a.dir / "pack"}, {"copy", copy.dir / "pack"}};
  options.policy = "lru";
  options.read_faults = FaultPlan{.delay_ms = 40};
  start(options);
  const uint32_t shared = a.experts_list[0];
  const auto client = attach("a");
  ASSERT_TRUE(client);
  use(*client, a, shared);
  { ASSERT_TRUE(attach("copy")); }  // whose blobs are known to be a's from now on
  for (const uint32_t other : {3, 4, 5, 6}) use(*client, a, a.experts_list[other]);
  damage_file(a, shared), damage_file(copy, shared);
  ASSERT_TRUE(client->fetch(std::vector<uint32_t>{shared}, {}));
  while (status().reads_elsewhere == 0) {}
  ASSERT_TRUE(change(PackChange::kReplace, "copy", copy.dir / "pack"));
  ASSERT_TRUE(change(PackChange::kRemove, "copy"));
  const auto arrived = client->next_arrival(kLong);
  ASSERT_FALSE(arrived);
  EXPECT_EQ(arrived.status().code(), Code::kCorrupt);
  EXPECT_THAT(arrived.status().message(), ::testing::StartsWith("model copy, layer 0, expert 0 (bf16)"));
  use(*client, a, a.experts_list[7]);
  while (status().models.size() != 1) {}
}

/// Two models were in memory when the last store shut down; one of them is removed while that is read again.
class RemovedWhileWarming : public EqualPacks, public ::testing::WithParamInterface<bool> {};

TEST_P(RemovedWhileWarming, NothingOfItIsReadOrKeptAnyMore) {
  const SmallPack a(large(0)), b(large(0.25F)), c(large(0.5F));
  const bool removed_is_hotter = GetParam();
  StoreOptions options = store_options(a, a.dense_bytes + b.dense_bytes + 40 * a.expert_bytes);
  options.models = {{"b", b.dir / "pack"}, {"a", a.dir / "pack"}};
  options.warm_start = true;
  start(options);
  {
    const auto in_a = attach("a"), in_b = attach("b");
    ASSERT_TRUE(in_a && in_b);
    for (int times = 0; times < (removed_is_hotter ? 4 : 1); ++times) use_all(*in_a, a);
    for (int times = 0; times < (removed_is_hotter ? 1 : 4); ++times) use_all(*in_b, b);
  }
  store_->stop();

  options.read_faults = FaultPlan{.delay_ms = 5};
  start(options);
  const auto in_b = attach("b");
  ASSERT_TRUE(in_b);
  ASSERT_TRUE(in_b->fetch(b.experts_list, {}));  // more than the store begins at once
  ASSERT_TRUE(change(PackChange::kRemove, "a"));
  for (size_t i = 0; i < b.experts_list.size(); ++i) {
    const auto arrived = in_b->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(b.holds(*arrived));
  }
  while (status().warm_start.running || status().queued > 0 || status().loading > 0) {}
  while (status().models.size() != 1) {}
  EXPECT_EQ(status().used_bytes, b.dense_bytes + b.experts_list.size() * b.expert_bytes) << "and nothing of a";
  ASSERT_TRUE(change(PackChange::kAdd, "c", c.dir / "pack"));  // on the entries that a had
  const auto in_c = attach("c");
  ASSERT_TRUE(in_c);
  use_all(*in_c, c);
  EXPECT_EQ(status().bad_blobs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Of, RemovedWhileWarming, ::testing::Bool(),
                         [](const auto& hotter) { return hotter.param ? "TheHotter" : "TheColder"; });

}  // namespace
}  // namespace moestro::store
