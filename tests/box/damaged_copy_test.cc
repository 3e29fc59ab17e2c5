// moestro-orchestrator reads a pack's copies of the checkpoint's files: one that is not as it was packed ends it with
// one line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "store/pack/packer.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro {
namespace {

TEST(DamagedCopy, EndsTheOrchestrator) {
  const testing::TemporaryDirectory dir;
  testing::write_checkpoint(dir / "src", {});
  ASSERT_TRUE(store::pack_checkpoint(dir / "src", dir / "pack", {}, {}));
  const std::string config = testing::read_text(dir / "pack" / "config.json");
  const size_t at = config.find("\"max_position_embeddings\":64");
  ASSERT_NE(at, std::string::npos);
  for (const std::string& change :
       {std::string("\"max_position_embeddings\":68"), std::string("\"max_position_embeddings\":6")}) {
    std::string damaged = config;
    testing::write_text(dir / "pack" / "config.json", damaged.replace(at, 28, change));
    const std::string line = (test::bin_dir() / "moestro-orchestrator").string() + " --model m=" +
                             (dir / "pack").string() + " --run-dir " + (dir / "run").string() +
                             " --http 127.0.0.1:0 2>&1";
    FILE* pipe = ::popen(line.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string said;
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) said += buffer;
    const int status = ::pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << said;
    EXPECT_THAT(said, ::testing::HasSubstr("config.json: is not as it was packed")) << change;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

}  // namespace
}  // namespace moestro
