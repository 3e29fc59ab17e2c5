// The real store told on which NUMA nodes its arena lies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/machine/numa.h"
#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using ::testing::HasSubstr;

class ArenaNodes : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> start(const char* log, const std::string& numa) {
    const std::vector<std::string> words{testing::program("moestro-store"),
                                         "--run-dir",
                                         (pack_.dir / "run").string(),
                                         "--arena-dir",
                                         arena_.path().string(),
                                         "--dram",
                                         std::to_string(pack_.dram(6)),
                                         "--model",
                                         "tiny=" + (pack_.dir / "pack").string(),
                                         "--numa",
                                         numa};
    return std::make_unique<ChildProcess>(words, (pack_.dir / log).string());
  }
  SmallPack pack_{testing::CheckpointOptions{.hidden = 256, .ffn = 256, .experts = 8}};
  const testing::MemoryDirectory arena_{pack_.dir / "arena"};
};

TEST_F(ArenaNodes, ItsPagesComeFromThoseThatAreNamed) {
  const std::string node = std::to_string(machine::memory_nodes().front());
  auto store = start("store.log", node);
  ASSERT_TRUE(store->says("ready")) << store->output();
  if (store->output().find("cannot be taken") != std::string::npos) GTEST_SKIP() << store->output();
  EXPECT_THAT(store->output(), HasSubstr(", NUMA node " + node + " 100 %"));
  store->kill(SIGKILL);
  store->wait();
  store = start("second.log", node);
  ASSERT_TRUE(store->says("ready")) << store->output();
  EXPECT_THAT(store->output(),
              ::testing::AllOf(HasSubstr("adopted the arena"), HasSubstr(", NUMA node " + node + " 100 %")));
}

TEST_F(ArenaNodes, OnesThatAreNotThereAreRefused) {
  for (const auto& [numa, words] :
       {std::pair("1000", "--numa: NUMA node 1000 has no memory that this process may use; nodes that have: "),
        {"all", "--numa (store.numa): 'all' is neither auto, off"}}) {
    auto store = start("store.log", numa);
    EXPECT_EQ(store->wait(), 2) << store->output();
    EXPECT_THAT(store->output(), HasSubstr(words));
    EXPECT_FALSE(fs::exists(arena_.path() / "arena"));
  }
}

}  // namespace
}  // namespace moestro::store
