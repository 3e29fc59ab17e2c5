// The real store on a machine whose memory is at several NUMA nodes: where its arena's pages come from, as the kernel
// counts them and as its log has it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "common/machine/numa.h"
#include "tests/arena/mounted.h"
#include "tests/machine/several_nodes.h"
#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using testing::Mounted;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ArenaOnSeveralNodes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (testing::why_no_nodes().empty())
      pack_ = std::make_unique<SmallPack>(testing::CheckpointOptions{.hidden = 256, .ffn = 256, .experts = 24});
  }
  static void TearDownTestSuite() { pack_.reset(); }
  void SetUp() override {
    if (!pack_) GTEST_SKIP() << testing::why_no_nodes();
    arena_.emplace(pack_->dir / "arena");
  }
  std::unique_ptr<ChildProcess> start(const std::string& numa, const fs::path& arena,
                                      const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{testing::program("moestro-store"),
                                   "--run-dir",
                                   (pack_->dir / "run").string(),
                                   "--arena-dir",
                                   arena.string(),
                                   "--dram",
                                   "17MiB",
                                   "--model",
                                   "tiny=" + (pack_->dir / "pack").string(),
                                   "--numa",
                                   numa};
    words.insert(words.end(), more.begin(), more.end());
    auto store =
        std::make_unique<ChildProcess>(words, (pack_->dir / ("store" + std::to_string(++started_) + ".log")).string());
    EXPECT_TRUE(store->says("ready")) << store->output();
    return store;
  }
  /// The share of each node in the mapping of `payload`, a file or the directory of one: N0=512 N1=512 in the kernel's
  /// words.
  static std::map<int, double> shares(const ChildProcess& store, const fs::path& payload) {
    std::map<int, double> found;
    double all = 0;
    std::ifstream maps("/proc/" + std::to_string(store.pid()) + "/numa_maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("file=" + payload.string()) == std::string::npos) continue;
      std::istringstream words(line);
      for (std::string word; words >> word;)
        if (int node = 0, pages = 0; std::sscanf(word.c_str(), "N%d=%d", &node, &pages) == 2)
          found[node] += pages, all += pages;
    }
    for (auto& [node, share] : found) share /= all;
    return found;
  }
  /// The first two nodes, which all of these tests use.
  std::string both() const { return machine::id_list(std::span(nodes_).first(2)); }
  void expect_halves(const ChildProcess& store, const fs::path& payload) const {
    const std::string half = " (4[0-9]|5[0-9]|60) %";
    EXPECT_THAT(store.output(), ContainsRegex(", NUMA node " + std::to_string(nodes_[0]) + half + ", node " +
                                              std::to_string(nodes_[1]) + half));
    const auto found = shares(store, payload);
    ASSERT_EQ(found.size(), 2u) << store.output();
    for (const auto& [node, share] : found) EXPECT_NEAR(share, 0.5, 0.1) << "node " << node;
  }
  void expect_all_on(int node, const ChildProcess& store, const fs::path& payload) const {
    EXPECT_THAT(store.output(), HasSubstr(", NUMA node " + std::to_string(node) + " 100 %"));
    EXPECT_EQ(shares(store, payload), (std::map<int, double>{{node, 1.0}}));
  }

  const std::vector<int> nodes_ = machine::memory_nodes();
  std::optional<testing::MemoryDirectory> arena_;
  inline static std::unique_ptr<SmallPack> pack_;  ///< none where the tests are skipped
  inline static int started_ = 0;
};

TEST_F(ArenaOnSeveralNodes, ItIsSpreadEvenlyAndAdoptedWhereItLies) {
  if (nodes_.size() == 2) {
    const auto store = start("auto", arena_->path());
    expect_halves(*store, arena_->path() / "arena");
    store->kill(SIGINT);
    EXPECT_EQ(store->wait(), 0) << store->output();
  }
  auto store = start(both(), arena_->path());
  expect_halves(*store, arena_->path() / "arena");
  store->kill(SIGKILL);
  store->wait();
  store = start(std::to_string(nodes_[1]), arena_->path());
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  expect_halves(*store, arena_->path() / "arena");
}

TEST_F(ArenaOnSeveralNodes, OneThatIsNamedHasAllOfIt) {
  for (const int node : {nodes_[1], nodes_[0]}) {
    const auto store = start(std::to_string(node), arena_->path());
    expect_all_on(node, *store, arena_->path() / "arena");
    store->kill(SIGINT);
    EXPECT_EQ(store->wait(), 0) << store->output();
  }
}

TEST_F(ArenaOnSeveralNodes, WhatNumactlSaysOutranksAutoAlone) {
  const auto say = [](int mode, int node) {
    const unsigned long mask = 1UL << node;
    return ::syscall(SYS_set_mempolicy, static_cast<unsigned long>(mode), mode == MPOL_DEFAULT ? nullptr : &mask,
                     mode == MPOL_DEFAULT ? 0UL : 8 * sizeof mask);
  };
  if (nodes_[1] >= 63) GTEST_SKIP() << "node " << nodes_[1] << " is beyond this test's mask";
  ASSERT_EQ(say(MPOL_PREFERRED, nodes_[1]), 0);
  const auto automatic = start("auto", arena_->path());
  expect_all_on(nodes_[1], *automatic, arena_->path() / "arena");
  automatic->kill(SIGINT);
  EXPECT_EQ(automatic->wait(), 0) << automatic->output();
  const auto named = start(both(), arena_->path());
  EXPECT_EQ(say(MPOL_DEFAULT, 0), 0);
  expect_halves(*named, arena_->path() / "arena");
}

TEST_F(ArenaOnSeveralNodes, HugePagesAreSpreadToo) {
  const Mounted huge("tmpfs", "size=64m,mode=0700,huge=within_size");
  if (!huge.mounted) GTEST_SKIP() << "no right to mount, or no huge pages in this kernel";
  const auto store = start(both(), huge.path);
  EXPECT_THAT(store->output(), HasSubstr("MiB on huge pages"));
  expect_halves(*store, huge.path / "arena");
}

TEST_F(ArenaOnSeveralNodes, PagesThatWereSetAsideAreSpreadToo) {
  const Mounted pages("hugetlbfs", "mode=0700");
  if (!pages.mounted) GTEST_SKIP() << "no right to mount a hugetlbfs";
  const auto store = start(both(), arena_->path(), {"--payload-dir", pages.path.string()});
  if (store->output().find("that were set aside") == std::string::npos)
    GTEST_SKIP() << "too few huge pages are set aside (vm.nr_hugepages)";
  expect_halves(*store, pages.path);
}

TEST_F(ArenaOnSeveralNodes, MemoryWithoutANameIsSpreadToo) {
  const auto store = start(both(), arena_->path(), {"--payload-dir", "memfd"});
  expect_halves(*store, "/memfd:moestro-arena");
}

}  // namespace
}  // namespace moestro::store
