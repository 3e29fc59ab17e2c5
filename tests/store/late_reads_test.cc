// A store that is killed while its reads are under way, on a drive so slow that they land seconds later. Its successor
// must wait for them: the lock of the arena directory is free only when the kernel has finished the last one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <thread>

#include "common/shm/mapped_file.h"
#include "store/client/status_client.h"
#include "store/reader/reader.h"
#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"
#include "tests/store/throttled_drive.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
constexpr milliseconds kLong{30000};
constexpr uint64_t kSlow = 3 << 20,
                   kFaster = 24 << 20;  ///< bytes/s: 8 reads in flight take 2 s; then the rest of the test hurries

class LateReads : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Status slow = drive_.start(pack_.dir.path(), kSlow);
    if (!slow) GTEST_SKIP() << slow.message();
    if (const auto ring = make_uring_reader({}, 1); std::string_view(GetParam()) == "uring" && !ring)
      GTEST_SKIP() << ring.status().message();
  }
  std::unique_ptr<ChildProcess> start_store(const char* log) {
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{testing::program("moestro-store"), "--run-dir", (pack_.dir / "run").string(),
                                 "--arena-dir", arena_dir_.path().string(), "--model",
                                 "tiny=" + (pack_.dir / "pack").string(), "--io", GetParam()},
        (pack_.dir / log).string());
  }
  std::string endpoint() { return "ipc://" + (pack_.dir / "run" / "store.sock").string(); }
  Result<std::unique_ptr<StoreClient>> attach() {
    return StoreClient::attach({.endpoint = endpoint(), .model = "tiny", .timeout = kLong});
  }
  static uint64_t hash(const shm::MappedFile& file) { return XXH3_64bits(file.data(), file.size()); }
  /// Asks for everything; returns when reads are under way.
  void begin_to_read(StoreClient& client) {
    ASSERT_TRUE(client.fetch(pack_.experts_list, {}));
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    for (bool loading = false; !loading;) {
      const auto status = query_store(endpoint(), kLong);
      ASSERT_TRUE(status) << status.status().message();
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nothing is being read";
      loading = status->loading > 0;
    }
    std::this_thread::sleep_for(milliseconds(500));  // planned is not yet submitted; all of it takes eight seconds
  }

  SmallPack pack_{testing::CheckpointOptions{.hidden = 512, .ffn = 512, .experts = 8}};  // 24 MiB of experts
  testing::MemoryDirectory arena_dir_{pack_.dir / "arena"};
  testing::ThrottledDrive drive_;  ///< before the processes in it
};

TEST_P(LateReads, LandBeforeTheSuccessorBegins) {
  auto store = start_store("store.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  auto client = attach();  // dense weights come at full speed
  ASSERT_TRUE(client) << client.status().message();
  ASSERT_TRUE(drive_.add(store->pid()));
  auto old_arena = shm::MappedFile::open(arena_dir_.path() / "arena", shm::MappedFile::Access::kReadOnly, 1);
  ASSERT_TRUE(old_arena);
  begin_to_read(**client);
  store->kill(SIGKILL);
  const uint64_t at_death = hash(*old_arena);

  auto successor = start_store("successor.log");
  ASSERT_TRUE(drive_.add(successor->pid()));  // the drive serves it after the dead one's reads
  ASSERT_TRUE(successor->says("waiting for")) << "it must not begin while reads are under way\n" << successor->output();
  ASSERT_TRUE(successor->says("ready")) << successor->output();
  EXPECT_NE(at_death, hash(*old_arena)) << "reads of the dead store have landed meanwhile";
  ASSERT_TRUE(drive_.limit(kFaster));
  EXPECT_EQ(store->wait(), 128 + SIGKILL);

  // The worker goes on with the successor: what it had asked of the dead store arrives, and no late read lands on it.
  for (size_t i = 0; i < pack_.experts_list.size(); ++i) {
    const auto arrived = (*client)->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived)) << "blob " << arrived->blob();
  }
  for (uint32_t blob = 0; blob < pack_.manifest.blobs.size(); ++blob) {
    const auto lease = (*client)->try_pin(blob);
    ASSERT_TRUE(lease) << "blob " << blob << ": the arena has room for all";
    EXPECT_TRUE(pack_.holds(*lease)) << "blob " << blob;
  }
  EXPECT_EQ((*client)->resumed(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Io, LateReads, ::testing::Values("uring", "pread"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace moestro::store
