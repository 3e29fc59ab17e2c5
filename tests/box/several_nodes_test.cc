// A whole box on a machine whose memory is at several NUMA nodes: where weights and threads are, by the worker's own
// words, and that answers do not depend on it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/machine/numa.h"
#include "tests/cli/temp_dir.h"
#include "tests/machine/several_nodes.h"
#include "tests/store/child_process.h"
#include "tests/support/places.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using testing::ChildProcess;
using testing::program;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class BoxOnSeveralNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::why_no_nodes(); !why.empty()) GTEST_SKIP() << why;
    ChildProcess pack({program("moestro"), "pack", (test::source_dir() / "models/demo").string(), "-o",
                       (dir_ / "demo").string()},
                      dir_ / "pack.log");
    ASSERT_EQ(pack.wait(), 0) << pack.output();
  }
  struct Ran {
    std::string answer, doctor;
    std::string worker;  ///< its log
  };
  /// A box of one worker answers a prompt.
  Ran run(const Words& flags) {
    const fs::path run = dir_ / ("run" + std::to_string(++boxes_));
    Words words{program("moestro"), "up", "--model", (dir_ / "demo").string(), "--threads", "2", "--deterministic",
                "--http", "127.0.0.1:0", "--run-dir", run.string()};
    words.insert(words.end(), flags.begin(), flags.end());
    ChildProcess up(words, run.string() + ".log");
    const std::string ready = "\nready ";
    EXPECT_TRUE(up.says(ready, std::chrono::minutes(2))) << up.output();  // the machine may be an emulated one
    const std::string said = up.output();
    const size_t url = std::min(said.find(ready), said.size() - ready.size()) + ready.size();
    ChildProcess complete({program("moestro"), "complete", "It was a cold and windy evening", "--max-tokens", "8",
                           "--url", said.substr(url, said.find('\n', url) - url)},
                          run.string() + ".answer");
    EXPECT_EQ(complete.wait(), 0) << complete.output();
    ChildProcess doctor({program("moestro"), "doctor", "--store", run.string()}, run.string() + ".doctor");
    doctor.wait();  // what else this machine lacks is not of interest
    up.kill(SIGINT);
    EXPECT_EQ(up.wait(), 0) << up.output();
    return {.answer = complete.output(), .doctor = doctor.output(), .worker = read_file(run / "logs" / "worker-0.log")};
  }

  const std::vector<int> nodes_ = machine::memory_nodes();
  const test::TempDir dir_;
  int boxes_ = 0;
};

TEST_F(BoxOnSeveralNodes, TheWorkerSaysWhereWeightsAndThreadsAre) {
  const std::string first = std::to_string(nodes_[0]), second = std::to_string(nodes_[1]);
  const std::string half = " (4[0-9]|5[0-9]|60) %", halves = "node " + first + half + ", node " + second + half;
  const Ran spread = run(nodes_.size() == 2 ? Words{} : Words{"--numa", first + "," + second});
  EXPECT_THAT(spread.worker, ContainsRegex("threads on NUMA nodes .*, weights on " + halves));
  EXPECT_THAT(spread.worker, HasSubstr("2 threads, each on its core"))
      << "where CPUs are at several nodes, that is what auto does";
  EXPECT_THAT(spread.worker, HasSubstr("; what lies on a node is computed there"));
  EXPECT_THAT(
      spread.worker,
      ContainsRegex("[1-9][0-9]* % of what was computed from weights was computed on the NUMA node where they lie"));
  EXPECT_THAT(spread.doctor, ContainsRegex("NUMA " + halves));
  EXPECT_NE(spread.answer, "");
  const Ran near = run({"--numa-node", second});
  EXPECT_THAT(near.worker, HasSubstr("threads on NUMA node " + second + ", weights on node " + second + " 100 %"));
  const Ran far = run({"--numa-node", second, "--numa", first});
  EXPECT_THAT(far.worker, HasSubstr("threads on NUMA node " + second + ", weights on node " + first +
                                    " 100 %; weights come from another node: --numa " + second));
  EXPECT_EQ(near.answer, spread.answer);
  EXPECT_EQ(far.answer, spread.answer);
}

}  // namespace
}  // namespace moestro
