// A byte that changes in memory is found, and what it belongs to is read again; probing; drives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "common/shm/mapped_file.h"
#include "store/client/status_client.h"
#include "store/pack/shards.h"
#include "tests/store/gated_reader.h"
#include "tests/store/memory_directory.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;

class ReadingTest : public ::testing::TestWithParam<IoKind> {
 protected:
  void start(StoreOptions options) {
    options.io = GetParam();
    store_ = std::make_unique<RunningStore>(options);
    ASSERT_TRUE(store_->status()) << store_->status().message();
    auto client = StoreClient::attach({.endpoint = store_->endpoint(), .model = "tiny", .client = "test"});
    ASSERT_TRUE(client) << client.status().message();
    client_ = std::move(*client);
  }
  StoreStatusReport status() { return *query_store(store_->endpoint(), kLong); }
  void fetch(const SmallPack& pack, const std::vector<uint32_t>& blobs) {
    ASSERT_TRUE(client_->fetch(blobs, {}));
    for (size_t i = 0; i < blobs.size(); ++i) {
      const auto arrived = client_->next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
      EXPECT_TRUE(pack.holds(*arrived)) << "blob " << arrived->blob();
    }
  }
  /// Changes a byte of a blob where it lies in the arena.
  static void flip(const SmallPack& pack, const Lease& lease, uint64_t at) {
    auto arena = shm::MappedFile::open(pack.arena.path() / "arena", shm::MappedFile::Access::kReadWrite, 1);
    ASSERT_TRUE(arena);
    const auto found =
        std::search(arena->data(), arena->data() + arena->size(), lease.data(), lease.data() + lease.length());
    ASSERT_NE(found, arena->data() + arena->size());
    found[at] ^= std::byte{8};
  }
  /// The same, in its pack.
  static void spoil_file(const SmallPack& pack, uint32_t blob) {
    const Slice& slice = pack.manifest.blobs[blob].slices[0];
    const auto file = pack.dir / "pack" / pack.manifest.files[slice.file];
    std::filesystem::permissions(file, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(slice.offset + 200));
    const auto byte = static_cast<char>(pack.contents[blob][200] ^ std::byte{0x5a});
    ASSERT_TRUE(stream.put(byte).flush());
  }
  // These outlive the store: what it serves, and what holds its readers back.
  std::optional<SmallPack> pack_;
  std::optional<testing::MemoryDirectory> other_drive_;
  Gate gate_;
  std::unique_ptr<RunningStore> store_;
  std::unique_ptr<StoreClient> client_;
};

TEST_P(ReadingTest, FlippedByteOfAResidentIsFoundAndReadAgain) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(16));
  options.scrub_bytes_per_s = 1ULL << 30;
  start(options);
  fetch(pack, pack.experts_list);
  const uint32_t victim = pack.experts_list[5];
  auto lease = client_->try_pin(victim);
  ASSERT_TRUE(lease);
  const std::byte* place = lease->data();
  EXPECT_TRUE(lease->is_right());
  EXPECT_EQ(client_->finds_of_all(), 0u);
  EXPECT_LT(status().memory_changed_s, 0) << "never";
  flip(pack, *lease, lease->length() / 2);
  EXPECT_FALSE(pack.holds(*lease));
  while (status().reading.scrub_mismatches == 0 || status().loading > 0) {}
  EXPECT_TRUE(pack.holds(*lease)) << "read again where it lies, though it is pinned";
  EXPECT_FALSE(lease->is_right()) << "and whoever has it is told";
  EXPECT_EQ(client_->finds_of_all(), 1u) << "so is whoever has a copy of it";
  lease->release();
  lease = client_->try_pin(victim);
  ASSERT_TRUE(lease) << "read again by itself";
  EXPECT_TRUE(pack.holds(*lease));
  EXPECT_TRUE(lease->is_right());
  EXPECT_EQ(lease->data(), place);
  EXPECT_EQ(status().reading.scrub_mismatches, 1u);
  EXPECT_GE(status().memory_changed_s, 0);
  EXPECT_EQ(status().bad_blobs, 0u);
}

/// While it is being read again, which a closed gate makes last, nobody gets it; and who asks gets the right bytes.
TEST_P(ReadingTest, WhatIsKnownToBeWrongIsLeasedToNobody) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(16));
  options.scrub_bytes_per_s = 1ULL << 30;
  options.wrap_reader = [this](auto inner) { return std::make_unique<GatedReader>(std::move(inner), gate_); };
  start(options);
  fetch(pack, pack.experts_list);
  const uint32_t victim = pack.experts_list[5];
  const auto lease = client_->try_pin(victim);
  ASSERT_TRUE(lease);
  auto second = StoreClient::attach({.endpoint = store_->endpoint(), .model = "tiny", .client = "second"});
  ASSERT_TRUE(second) << second.status().message();
  ASSERT_TRUE((*second)->try_pin(victim));
  gate_.close();
  flip(pack, *lease, 7);
  while (status().reading.scrub_mismatches == 0) {}
  EXPECT_FALSE((*second)->try_pin(victim)) << "not even while another has it";
  EXPECT_TRUE((*second)->try_pin(pack.experts_list[6])) << "the others are as they were";
  ASSERT_TRUE((*second)->fetch(std::vector<uint32_t>{victim}, {}));
  EXPECT_EQ((*second)->next_arrival(milliseconds(1)).status().code(), Code::kUnavailable);
  gate_.open();
  const auto arrived = (*second)->next_arrival(kLong);
  ASSERT_TRUE(arrived) << arrived.status().message();
  EXPECT_TRUE(pack.holds(*arrived)) << "it does not wait for the first to let go";
  EXPECT_TRUE(arrived->is_right());
  EXPECT_FALSE(lease->is_right());
}

/// Its file is damaged as well: it is refused by name, and its place stays its own until the last lease is gone.
TEST_P(ReadingTest, WhatIsWrongInMemoryAndOnDiskIsRefused) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(16));
  options.scrub_bytes_per_s = 1ULL << 30;
  start(options);
  fetch(pack, pack.experts_list);
  const uint32_t victim = pack.experts_list[5];
  auto lease = client_->try_pin(victim);
  ASSERT_TRUE(lease);
  spoil_file(pack, victim);
  flip(pack, *lease, 7);
  while (status().bad_blobs == 0) {}
  EXPECT_FALSE(lease->is_right());
  lease->release();
  ASSERT_TRUE(client_->fetch(std::vector<uint32_t>{victim}, {}));
  const auto arrived = client_->next_arrival(kLong);
  EXPECT_EQ(arrived.status().code(), Code::kCorrupt);
  EXPECT_EQ(client_->failed_blob(), victim);
}

TEST_P(ReadingTest, FlippedByteOfDenseWeightsIsMadeGoodWhereTheyLie) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(4));
  options.scrub_bytes_per_s = 1ULL << 30;
  start(options);
  uint32_t dense = 0;
  while (pack.manifest.blobs[dense].kind != BlobKind::kDense) ++dense;
  const auto lease = client_->try_pin(dense);
  ASSERT_TRUE(lease);
  flip(pack, *lease, 100);
  while (status().reading.scrub_mismatches == 0 || status().loading > 0) {}
  EXPECT_TRUE(pack.holds(*lease));
  EXPECT_FALSE(lease->is_right());
}

TEST_P(ReadingTest, DenseWeightsThatCannotBeReadAgainAreKnownToTheirWorkers) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(4));
  options.scrub_bytes_per_s = 1ULL << 30;
  start(options);
  uint32_t dense = 0;
  while (pack.manifest.blobs[dense].kind != BlobKind::kDense) ++dense;
  auto lease = client_->try_pin(dense);
  ASSERT_TRUE(lease);
  spoil_file(pack, dense);
  flip(pack, *lease, 100);
  while (status().bad_blobs == 0) {}
  EXPECT_FALSE(lease->is_right());
  lease->release();
  EXPECT_FALSE(client_->try_pin(dense));
  ASSERT_TRUE(client_->fetch(std::vector<uint32_t>{dense}, {}));
  EXPECT_EQ(client_->next_arrival(kLong).status().code(), Code::kCorrupt);
}

/// Another store, which began later and has a rate, says when there was time enough.
TEST_P(ReadingTest, WithoutARateNothingIsScrubbed) {
  const SmallPack other;
  const SmallPack& pack = pack_.emplace();
  start(store_options(pack, pack.dram(16)));
  fetch(pack, pack.experts_list);
  StoreOptions options = store_options(other, other.dram(16));
  options.scrub_bytes_per_s = 1ULL << 30;
  const RunningStore scrubs(options);
  ASSERT_TRUE(scrubs.status()) << scrubs.status().message();
  const auto client = StoreClient::attach({.endpoint = scrubs.endpoint(), .model = "tiny"});
  ASSERT_TRUE(client) << client.status().message();
  while (query_store(scrubs.endpoint(), kLong)->reading.scrubbed_bytes < 4 * other.dense_bytes) {}
  EXPECT_EQ(status().reading.scrubbed_bytes, 0u);
}

TEST_P(ReadingTest, PackOnTwoDrivesIsReadByTwoThreads) {
  const SmallPack& pack = pack_.emplace(testing::CheckpointOptions{.hidden = 256, .ffn = 512, .experts = 8});
  const testing::MemoryDirectory& other = other_drive_.emplace(pack.dir / "other");
  if (!other.in_memory()) GTEST_SKIP() << "no second file system at hand";
  PackOptions spread;
  spread.spread = {{other.path(), 1}};
  const auto packed = pack_checkpoint(pack.dir / "src", pack.dir / "spread", spread, {});
  ASSERT_TRUE(packed) << packed.status().message();
  StoreOptions options = store_options(pack, pack.dram(4));
  options.models[0].pack = pack.dir / "spread";
  start(options);
  fetch(pack, pack.experts_list);
  const StoreStatusReport report = status();
  ASSERT_EQ(report.reading.drives.size(), 2u);
  const uint64_t a = report.reading.drives[0].bytes_read, b = report.reading.drives[1].bytes_read;
  EXPECT_EQ(a + b, report.bytes_read);
  EXPECT_NEAR(static_cast<double>(a) / static_cast<double>(b), 1.0, 0.1) << "half of it each";
}

TEST_P(ReadingTest, VanishedDriveIsSaidAtStart) {
  SmallPack pack;
  PackOptions spread;
  spread.spread = {{pack.dir / "b", 1}};
  ASSERT_TRUE(pack_checkpoint(pack.dir / "src", pack.dir / "spread", spread, {}));
  std::filesystem::rename(pack.dir / "b", pack.dir / "c");
  StoreOptions options = store_options(pack, pack.dram(4));
  options.models[0].pack = pack.dir / "spread";
  EXPECT_THAT(RunningStore(options).status().message(), ::testing::HasSubstr("which is not there: mount that drive"));
}

TEST_P(ReadingTest, DrivesAreMeasuredAtStartUnlessTheAnswerIsGiven) {
  const SmallPack& pack = pack_.emplace(testing::CheckpointOptions{.hidden = 512, .ffn = 1024, .experts = 8});
  StoreOptions options = store_options(pack, (96ULL << 20));
  options.probe_bytes_min = 1 << 20;
  options.dram_bytes.reset();
  start(options);
  fetch(pack, pack.experts_list);
  StoreDriveReport drive = status().reading.drives.at(0);
  EXPECT_GT(drive.chunk_bytes, 0u);
  EXPECT_LE(drive.depth, kProbeDepthMax);
  client_.reset(), store_.reset();
  options.read_chunk = 256 << 10, options.read_depth = 3;
  start(options);
  fetch(pack, pack.experts_list);
  drive = status().reading.drives.at(0);
  EXPECT_EQ(drive.chunk_bytes, 256u << 10);
  EXPECT_EQ(drive.depth, 3u);
  EXPECT_EQ(drive.bytes_per_s, 0u) << "nothing was left to measure";
}

TEST_P(ReadingTest, InjectedFaultsAreMadeGood) {
  const SmallPack& pack = pack_.emplace();
  StoreOptions options = store_options(pack, pack.dram(3));
  options.read_faults = FaultPlan{20, 10, 20, 20, 20, 100, 20, 9};
  start(options);
  for (int round = 0; round < 5; ++round) fetch(pack, pack.experts_list);
  const StoreStatusReport report = status();
  EXPECT_GT(report.retries, 0u);
  EXPECT_EQ(report.bad_blobs, 0u);
}

INSTANTIATE_TEST_SUITE_P(Io, ReadingTest, ::testing::Values(IoKind::kAuto, IoKind::kPread),
                         [](const auto& kind) { return kind.param == IoKind::kAuto ? "auto" : "pread"; });

}  // namespace
}  // namespace moestro::store
