// Nodes of memory: of machines that a folder describes, and of this one.

#include "common/machine/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
  for (const char* bad : {"", "x", "1-", "-1", "3-1", "1;2", "1,,2", "0-16", "0-99999999", "99999999999999999999"})
    EXPECT_EQ(parse_id_list(bad, 16), Ids{}) << bad;
}

TEST(IdLists, AreWrittenAsTheyAreRead) {
  for (const char* text : {"0", "0-1", "0,2", "0-2,5", "0-2,5-6,9", ""})
    EXPECT_EQ(id_list(parse_id_list(text, 16)), text);
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
    EXPECT_THAT(choice.status().message(),
                AllOf(HasSubstr("neither auto, off"), HasSubstr("'" + std::string(bad) + "'")));
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

}  // namespace
}  // namespace moestro::machine
