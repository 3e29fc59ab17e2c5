// The three daemons on one YAML file: each reads the whole of it, and refuses it with one line where it is
// wrong or says too little. That they start from a good one is shown by every test that runs `moestro up`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/support/places.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ProgramsTest : public ::testing::TestWithParam<const char*> {
 protected:
  ProgramsTest() : dir_(fs::temp_directory_path() / ("moestro-programs-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~ProgramsTest() override { fs::remove_all(dir_); }

  struct Ran {
    int exit_code;
    std::string said;  ///< stdout and stderr
  };
  Ran run(const std::string& yaml) {
    std::ofstream(dir_ / "box.yaml") << yaml;
    const std::string line =
        (test::bin_dir() / GetParam()).string() + " -c " + (dir_ / "box.yaml").string() + " 2>&1";
    FILE* pipe = ::popen(line.c_str(), "r");
    Ran ran;
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) ran.said += buffer;
    const int status = ::pclose(pipe);
    ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ran;
  }
  void expect_refusal(const std::string& yaml, const std::string& why) {
    const Ran ran = run(yaml);
    EXPECT_EQ(ran.exit_code, 2) << ran.said;
    EXPECT_THAT(ran.said, HasSubstr(why));
    EXPECT_THAT(ran.said, HasSubstr(GetParam()));
    EXPECT_EQ(std::count(ran.said.begin(), ran.said.end(), '\n'), 1) << ran.said;
  }

  fs::path dir_;
};

TEST_P(ProgramsTest, AWrongFileIsRefusedInOneLine) {
  expect_refusal("store: {drm: 1GiB}\n", "store.dram");
  expect_refusal("workers: {threads: many}\n", "workers.threads");
  expect_refusal("- not\n- sections\n", "box.yaml");
}

TEST_P(ProgramsTest, AFileThatSaysTooLittleIsToldWhatIsMissing) {
  expect_refusal("model: {pack: /nowhere/demo}\nstore: {arena_dir: /nowhere/arena}\n", "run.dir");
  expect_refusal("run: {dir: /nowhere/run}\nstore: {arena_dir: /nowhere/arena}\n", "model.pack");
}

INSTANTIATE_TEST_SUITE_P(Daemons, ProgramsTest,
                         ::testing::Values("moestro-store", "moestro-worker", "moestro-orchestrator"),
                         [](const auto& param) { return std::string(param.param).substr(8); });

}  // namespace
}  // namespace moestro
