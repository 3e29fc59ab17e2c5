// The real store where there is little room for its arena: a tmpfs that it fills, too few huge pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/arena/mounted.h"
#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using testing::Mounted;
using ::testing::HasSubstr;
using ::testing::Not;

class SmallRooms : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> start(const fs::path& arena, const char* log, std::vector<std::string> more = {}) {
    std::vector<std::string> words{testing::program("moestro-store"),
                                   "--run-dir",
                                   (pack_.dir / "run").string(),
                                   "--arena-dir",
                                   arena.string(),
                                   "--dram",
                                   dram_,
                                   "--model",
                                   "tiny=" + (pack_.dir / "pack").string()};
    words.insert(words.end(), more.begin(), more.end());
    return std::make_unique<ChildProcess>(words, (pack_.dir / log).string());
  }
  SmallPack pack_{testing::CheckpointOptions{.hidden = 256, .ffn = 256, .experts = 8}};
  const uint64_t arena_bytes_ = pack_.dram(12);
  std::string dram_ = std::to_string(arena_bytes_);
};

TEST_F(SmallRooms, AnArenaThatFillsItsTmpfsIsAdopted) {
  // Room for the arena and its small files once, not twice.
  const Mounted tmpfs("tmpfs", "mode=0700,size=" + std::to_string(arena_bytes_ + (1 << 20)));
  if (!tmpfs.mounted) GTEST_SKIP() << "no right to mount a small tmpfs";
  ASSERT_GT(arena_bytes_, 1u << 20) << "a second arena must not fit";
  auto store = start(tmpfs.path, "first.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  store->kill(SIGKILL);
  store->wait();
  store = start(tmpfs.path, "second.log");
  ASSERT_TRUE(store->says("ready")) << store->output();
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
}

TEST_F(SmallRooms, LeftToItselfTheStoreTakesAnArenaThatFitsBesideItsOwnFiles) {
  for (const uint64_t size : {arena_bytes_, arena_bytes_ + (256 << 10)}) {
    const Mounted tmpfs("tmpfs", "mode=0700,size=" + std::to_string(size));
    if (!tmpfs.mounted) GTEST_SKIP() << "no right to mount a small tmpfs";
    dram_ = "auto";
    const auto store = start(tmpfs.path, ("auto-" + std::to_string(size) + ".log").c_str());
    ASSERT_TRUE(store->says("ready")) << store->output();
    EXPECT_LT(fs::file_size(tmpfs.path / "arena"), size);
    store->kill(SIGTERM);
    EXPECT_EQ(store->wait(), 0);
  }
}

TEST_F(SmallRooms, WhereTooFewHugePagesAreSetAsideItTakesOthersAndSaysSo) {
  // One at most, whatever this machine has set aside. (A size of 0 reads as no limit.)
  const Mounted pages("hugetlbfs", "mode=0700,pagesize=2M,size=2M");
  if (!pages.mounted) GTEST_SKIP() << "no right to mount a hugetlbfs";
  ASSERT_GE(arena_bytes_, 4u << 20);
  const testing::MemoryDirectory arena(pack_.dir / "arena");
  auto store = start(arena.path(), "first.log", {"--payload-dir", pages.path.string()});
  ASSERT_TRUE(store->says("ready")) << store->output();
  EXPECT_THAT(store->output(), HasSubstr("does not fit in the huge pages set aside for " + pages.path.string()));
  EXPECT_THAT(store->output(), HasSubstr("until then it lies in " + arena.path().string()));
  EXPECT_TRUE(fs::exists(arena.path() / "arena"));
  store->kill(SIGKILL);
  store->wait();
  store = start(arena.path(), "second.log", {"--payload-dir", pages.path.string()});
  ASSERT_TRUE(store->says("ready")) << store->output();
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  EXPECT_THAT(store->output(), Not(HasSubstr("does not fit")));
  store->kill(SIGTERM);
  EXPECT_EQ(store->wait(), 0);
  EXPECT_FALSE(fs::exists(arena.path() / "arena")) << "a store that ends leaves nothing";
}

}  // namespace
}  // namespace moestro::store
