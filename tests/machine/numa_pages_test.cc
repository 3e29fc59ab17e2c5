// Pages and the nodes they lie on, of this machine; what needs two nodes is skipped on one.

#include "common/machine/numa_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

namespace moestro::machine {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int>;

TEST(NodeShares, AreSaidInPercent) {
  EXPECT_EQ(node_shares({}), "");
  EXPECT_EQ(node_shares({{0, 512}}), "node 0 100 %");
  EXPECT_EQ(node_shares({{0, 2}, {3, 1}}), "node 0 67 %, node 3 33 %");
}

/// Shared memory of some pages, as an arena is.
class Mapped {
 public:
  explicit Mapped(size_t bytes)
      : bytes_(bytes), data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapped() { ::munmap(data_, bytes_); }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  std::byte* at(size_t offset) const { return bytes().data() + offset; }

 private:
  size_t bytes_;
  void* data_;
};

TEST(NodeMaps, SayWhereAPlaceLies) {
  const Mapped memory(3 * kNodePieceBytes + 4096);
  const NodeMap map(memory.bytes(), {1, 0, -1, 1});
  EXPECT_EQ(map.node_of(memory.at(0)), 1);
  EXPECT_EQ(map.node_of(memory.at(kNodePieceBytes - 1)), 1);
  EXPECT_EQ(map.node_of(memory.at(kNodePieceBytes)), 0);
  EXPECT_EQ(map.node_of(memory.at(2 * kNodePieceBytes)), -1) << "nobody knows";
  EXPECT_EQ(map.node_of(memory.at(3 * kNodePieceBytes + 4095)), 1);
  EXPECT_EQ(map.node_of(memory.at(0) - 1), -1) << "before it";
  EXPECT_EQ(map.node_of(memory.at(0) + 4 * kNodePieceBytes), -1) << "behind it";
  EXPECT_EQ(map.node_of(nullptr), -1);
  EXPECT_EQ(map.pieces(), (std::map<int, size_t>{{0, 1}, {1, 2}}));
  EXPECT_TRUE(NodeMap().empty());
  EXPECT_EQ(NodeMap().node_of(memory.at(0)), -1);
}

std::string why_no_policies() {
  return NodePreference().come_from(memory_nodes().front()).message();
}

TEST(NodePreferences, PagesComeFromTheNodeAndThePolicyIsTheFormerOneAfterwards) {
  if (const std::string why = why_no_policies(); !why.empty()) GTEST_SKIP() << why;
  const Ids nodes = memory_nodes();
  constexpr size_t kPieces = 6;
  const Mapped memory(kPieces * kNodePieceBytes);
  EXPECT_FALSE(has_memory_policy());
  {
    NodePreference preference;
    EXPECT_FALSE(has_memory_policy()) << "nothing is preferred yet";
    for (size_t i = 0; i < kPieces; ++i) {
      ASSERT_TRUE(preference.come_from(nodes[i % nodes.size()]).is_ok());
      std::memset(memory.at(i * kNodePieceBytes), 1, kNodePieceBytes);
    }
    EXPECT_TRUE(has_memory_policy());
  }
  EXPECT_FALSE(has_memory_policy());
  const NodeMap map = NodeMap::of(memory.bytes());
  ASSERT_FALSE(map.empty());
  for (size_t i = 0; i < kPieces; ++i)
    EXPECT_EQ(map.node_of(memory.at(i * kNodePieceBytes)), nodes[i % nodes.size()]) << i;
  const auto pieces = map.pieces();
  EXPECT_EQ(pieces.size(), std::min(nodes.size(), kPieces));
  for (const auto& [node, count] : pieces) EXPECT_GE(count, kPieces / nodes.size()) << node;
}

TEST(NodePreferences, OneThatSomebodyHadSetComesBack) {
  if (const std::string why = why_no_policies(); !why.empty()) GTEST_SKIP() << why;
  const unsigned long mask = 1UL << memory_nodes().front();
  ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &mask, 65UL), 0);
  {
    NodePreference preference;
    ASSERT_TRUE(preference.come_from(memory_nodes().front()).is_ok());
  }
  int mode = -1;
  unsigned long nodes[kNodesEnd / 64] = {};
  ASSERT_EQ(::syscall(SYS_get_mempolicy, &mode, nodes, static_cast<unsigned long>(kNodesEnd), nullptr, 0UL), 0);
  EXPECT_EQ(mode, MPOL_INTERLEAVE);
  EXPECT_EQ(nodes[0], mask);
  ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL), 0);
}

TEST(NodePreferences, ANodeThatIsNotThereIsRefusedAndNothingIsChanged) {
  NodePreference preference;
  const Status refused = preference.come_from(kNodesEnd - 1);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("from NUMA node 1023 (set_mempolicy: "));
  EXPECT_FALSE(has_memory_policy());
}

/// From now on these calls fail with EPERM, as under Docker's default profile.
bool refuse_memory_policies() {
  constexpr auto kNumber = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_mempolicy, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_get_mempolicy, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(NodePreferences, WhatAFilterRefusesIsSaidAndNothingElseFails) {
  const Mapped memory(1 << 20);
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!refuse_memory_policies()) ::_exit(2);
    const Status refused = NodePreference().come_from(0);
    const bool said =
        refused.code() == Code::kUnavailable && refused.message().find("Operation not permitted") != std::string::npos;
    ::_exit(said && !has_memory_policy() && NodeMap::of(memory.bytes()).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no right to set a filter";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// A piece is a whole number of rounds over two nodes: whoever looked at the same page of each would find all of them
/// on one.
TEST(NodeMaps, WhereSmallPagesAreDealtOutOneByOneEachNodeHasItsShare) {
  if (const std::string why = why_no_policies(); !why.empty()) GTEST_SKIP() << why;
  const Ids nodes = memory_nodes();
  if (nodes.back() >= 64) GTEST_SKIP() << "node " << nodes.back() << " is beyond this test's mask";
  unsigned long mask = 0;
  for (const int node : nodes) mask |= 1UL << node;
  constexpr size_t kPieces = 32;
  const Mapped memory(kPieces * kNodePieceBytes);
  (void)::madvise(memory.bytes().data(), memory.bytes().size(),
                  MADV_NOHUGEPAGE);  // refused where there are no huge pages at all
  ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &mask, 65UL), 0);
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL), 0);
  const auto pieces = NodeMap::of(memory.bytes()).pieces();
  ASSERT_EQ(pieces.size(), nodes.size());
  const double share = static_cast<double>(kPieces) / static_cast<double>(nodes.size());
  for (const auto& [node, count] : pieces) EXPECT_NEAR(static_cast<double>(count), share, share / 4) << node;
}

}  // namespace
}  // namespace moestro::machine
