// Nodes of memory: of machines that a folder describes, and of this one.

#include "common/machine/numa.h"

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
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace moestro::machine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int>;

TEST(IdLists, AreReadAsSysfsWritesThem) {
  EXPECT_EQ(parse_id_list("0-2,5", 16), (Ids{0, 1, 2, 5}));
  for (const char* bad : {"", "x", "1-", "-1", "3-1", "1;2", "1,,2", "0-16", "0-99999999", "99999999999999999999"}) EXPECT_EQ(parse_id_list(bad, 16), Ids{}) << bad;
}

TEST(IdLists, AreWrittenAsTheyAreRead) {
  for (const char* text : {"0", "0-1", "0,2", "0-2,5", "0-2,5-6,9", ""}) EXPECT_EQ(id_list(parse_id_list(text, 16)), text);
}

class MemoryNodes : public ::testing::Test {
 protected:
  MemoryNodes() {
    char name[] = "/tmp/moestro-nodes-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~MemoryNodes() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Ids nodes() const { return memory_nodes(root_, root_ / "status"); }
  std::filesystem::path root_;
};

TEST_F(MemoryNodes, AreThoseWithMemoryThatThisProcessMayUse) {
  write("node/online", "0-3\n");
  write("node/has_memory", "0-2\n");
  EXPECT_EQ(nodes(), (Ids{0, 1, 2})) << "node 3 has CPUs alone";
  write("status", "Name:\tx\nMems_allowed:\t6\nMems_allowed_list:\t1-2\n");
  EXPECT_EQ(nodes(), (Ids{1, 2})) << "a cpuset keeps it from node 0";
}

TEST_F(MemoryNodes, AreOneWhereTheMachineDoesNotSay) {
  EXPECT_EQ(nodes(), Ids{0});
  write("node/has_memory", "0-\n");
  EXPECT_EQ(nodes(), Ids{0});
}

TEST(NodeChoices, AreReadOrRefused) {
  EXPECT_EQ(parse_node_choice("auto")->kind, NodeChoice::Kind::kAuto);
  EXPECT_EQ(parse_node_choice("off")->kind, NodeChoice::Kind::kOff);
  EXPECT_EQ(parse_node_choice("3,0-1,1")->nodes, (Ids{0, 1, 3}));
  for (const char* bad : {"", "all", "node:0", "0-", "-1", "1024", "0 1"}) {
    const auto choice = parse_node_choice(bad);
    ASSERT_FALSE(choice.is_ok()) << bad;
    EXPECT_THAT(choice.status().message(), AllOf(HasSubstr("neither auto, off"), HasSubstr("'" + std::string(bad) + "'")));
  }
}

TEST(NodeChoices, AutoSpreadsOverAllWhereThereAreSeveral) {
  const NodeChoice automatic, off{NodeChoice::Kind::kOff};
  EXPECT_EQ(*chosen_nodes(automatic, Ids{0, 1}, false), (Ids{0, 1}));
  EXPECT_EQ(*chosen_nodes(automatic, Ids{0, 1}, true), Ids{}) << "numactl has said something";
  EXPECT_EQ(*chosen_nodes(automatic, Ids{0}, false), Ids{});
  EXPECT_EQ(*chosen_nodes(off, Ids{0, 1}, false), Ids{});
}

TEST(NodeChoices, NodesAreTakenAsTheyAreOrRefused) {
  const NodeChoice one{NodeChoice::Kind::kNodes, {1}};
  EXPECT_EQ(*chosen_nodes(one, Ids{0, 1}, true), Ids{1}) << "whatever numactl has said";
  const auto refused = chosen_nodes(one, Ids{0, 2, 3}, false);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.status().message(), "NUMA node 1 has no memory that this process may use; nodes that have: 0,2-3");
}

TEST(NodeShares, AreSaidInPercent) {
  EXPECT_EQ(node_shares({}), "");
  EXPECT_EQ(node_shares({{0, 512}}), "node 0 100 %");
  EXPECT_EQ(node_shares({{0, 2}, {3, 1}}), "node 0 67 %, node 3 33 %");
}

/// Shared memory of some pages, as an arena is.
class Mapped {
 public:
  explicit Mapped(size_t bytes) : bytes_(bytes), data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapped() { ::munmap(data_, bytes_); }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  size_t bytes_;
  void* data_;
};

/// The policy of the page at `place`; -1: the kernel does not tell.
int policy_of(const std::byte* place) {
  int mode = -1;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, place, static_cast<unsigned long>(MPOL_F_ADDR)) == 0 ? mode : -1;
}

TEST(Spreading, IsTheMappingsPolicyAndPagesLieThere) {
  const Mapped memory(4 << 20);
  const int node = memory_nodes().front();
  const Status spread = spread_over(memory.bytes(), Ids{node});
  if (!spread.is_ok()) GTEST_SKIP() << spread.message();
  EXPECT_EQ(policy_of(memory.bytes().data()), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_of(memory.bytes().data() + (3 << 20)), MPOL_INTERLEAVE);
  EXPECT_FALSE(has_memory_policy()) << "the mapping alone";
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  const auto pages = nodes_of_pages(memory.bytes());
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages.begin()->first, node);
  EXPECT_GT(pages.begin()->second, 100u);
}

TEST(Spreading, OverNodesThatAreNotThereIsRefused) {
  const Mapped memory(1 << 20);
  const Status spread = spread_over(memory.bytes(), Ids{kNodesEnd - 1});
  EXPECT_EQ(spread.code(), Code::kUnavailable);
  EXPECT_THAT(spread.message(), HasSubstr("NUMA nodes 1023 (mbind: "));
}

/// From now on these calls fail with EPERM, as under Docker's default profile.
bool refuse_memory_policies() {
  constexpr auto kNumber = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_get_mempolicy, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Spreading, WhatAFilterRefusesIsSaidAndNothingElseFails) {
  const Mapped memory(1 << 20);
  std::memset(memory.bytes().data(), 1, memory.bytes().size());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!refuse_memory_policies()) ::_exit(2);
    const Status spread = spread_over(memory.bytes(), Ids{0});
    const bool said = spread.code() == Code::kUnavailable && spread.message().find("Operation not permitted") != std::string::npos;
    ::_exit(said && !has_memory_policy() && nodes_of_pages(memory.bytes()).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no right to set a filter";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace moestro::machine
