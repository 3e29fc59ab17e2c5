#include "services/box/box_flags.h"

#include "orchestrator/orchestrator.h"
#include "services/command_line/command_line.h"
#include "services/worker/engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moestro::box {
namespace {

using ::testing::HasSubstr;

class BoxFlagsTest : public ::testing::Test {
 protected:
  BoxFlagsTest()
      : file_(std::filesystem::temp_directory_path() / ("moestro-box-" + std::to_string(::getpid()) + ".yaml")) {}
  ~BoxFlagsTest() override { std::filesystem::remove(file_); }

  void write(const std::string& text) { std::ofstream(file_) << text; }
  /// What a program with these flags reads from this command line.
  Status read(std::vector<std::string> line) {
    command_line::App app("", "program");
    const BoxFlags flags(
        app, {"store.dram", "model.name", "model.aliases", "workers.threads", "workers.deterministic",
              "orchestrator.prefix_cache", "run.drain"});
    std::vector<char*> argv{program_.data()};
    for (auto& word : line) argv.push_back(word.data());
    exit_ = command_line::parse_program_line(app, static_cast<int>(argv.size()), argv.data());
    return exit_ ? Status::ok() : flags.read(box_);
  }

  std::filesystem::path file_;
  std::string program_ = "program";
  config::BoxConfig box_;
  std::optional<int> exit_;
};

TEST_F(BoxFlagsTest, FlagsOutrankTheFile) {
  write("store: {dram: 1GiB}\nworkers: {threads: 3, reserve: 5}\n");
  ASSERT_TRUE(read({"-c", file_.string(), "--threads", "2", "--deterministic"}).is_ok());
  EXPECT_EQ(box_.store.dram, config::Bytes{1ull << 30});
  EXPECT_EQ(box_.workers.threads, 2);
  EXPECT_EQ(box_.workers.reserve, 5) << "keys without a flag of this program are read too: the file is the whole box's";
  EXPECT_TRUE(box_.workers.deterministic);
}

TEST_F(BoxFlagsTest, AListIsGivenByAFlagSeveralTimesOrInTheFile) {
  write("model: {aliases: [a, b/c]}\n");
  ASSERT_TRUE(read({"-c", file_.string()}).is_ok());
  EXPECT_EQ(box_.model.aliases, "a,b/c");
  ASSERT_TRUE(read({"-c", file_.string(), "--alias", "x", "--alias", "y,z"}).is_ok());
  EXPECT_EQ(box_.model.aliases, "x,y,z");
  EXPECT_THAT(read({"--name", "x", "--name", "y"}).message(), HasSubstr("--name is given 2 times")) << "no list";
}

TEST_F(BoxFlagsTest, ASwitchNamedNoTurnsItsKeyOff) {
  ASSERT_TRUE(read({}).is_ok());
  EXPECT_TRUE(box_.orchestrator.prefix_cache);
  ASSERT_TRUE(read({"--no-prefix-cache"}).is_ok());
  EXPECT_FALSE(box_.orchestrator.prefix_cache);
}

TEST_F(BoxFlagsTest, WhatIsWrongNamesItsPlace) {
  write("store:\n  dram: 1 bushel\n");
  EXPECT_THAT(read({"-c", file_.string()}).message(), HasSubstr("line 2: store.dram"));
  EXPECT_THAT(read({"-c", file_.string() + ".not"}).message(), HasSubstr(".not"));
  EXPECT_THAT(read({"--threads", "0"}).message(), HasSubstr("--threads"));
  EXPECT_THAT(read({"--drain", "5"}).message(), HasSubstr("--drain"));
  EXPECT_THAT(read({"--threads", "1", "--threads", "2"}).message(), HasSubstr("2 times"));
}

TEST_F(BoxFlagsTest, AWrongCommandLineEndsWith2AndHelpWith0) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(read({"--reserve", "2"}).is_ok());
  EXPECT_EQ(exit_, 2) << "a flag of another program";
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(err, HasSubstr("--reserve"));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1);
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(read({"--help"}).is_ok());
  EXPECT_EQ(exit_, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("--dram"));
}

TEST(BoxFlags, ACommandCanGiveAFlagAHelpOfItsOwn) {
  command_line::App app("", "program");
  const BoxFlags flags(app, {{"orchestrator.http", "Whom to ask"}, "run.drain"});
  const std::string page = app.parse("--help-all").print;
  EXPECT_THAT(page, HasSubstr("Whom to ask\n")) << "nor has it the default of the table";
  EXPECT_THAT(page, HasSubstr("How long requests in flight may take"));
}

/// What auto comes to is in the programs' own options.
TEST(BoxFlags, TheHelpsSayWhatAutoIs) {
  config::BoxConfig box;
  const config::Schema schema = config::box_schema(box);
  const engine::EngineOptions engine;
  const orchestrator::OrchestratorOptions orchestrator;
  const std::pair<const char*, uint64_t> cases[] = {{"workers.kv_tokens", engine.kv_tokens},
                                                    {"orchestrator.step_tokens", engine.step_tokens_max},
                                                    {"orchestrator.queue_max", orchestrator.queue_max}};
  for (const auto& [key, value] : cases)
    EXPECT_THAT(schema.find(key)->help, HasSubstr("auto: " + std::to_string(value))) << key;
}

TEST(BoxFlags, EveryFlagOfTheTable) {
  command_line::App app;
  const BoxFlags flags(app);
  config::BoxConfig box;
  const config::Schema schema = config::box_schema(box);
  for (const auto& row : schema.rows())
    if (!row.flag.empty()) EXPECT_TRUE(app.has_option(row.flag)) << row.flag;
}

}  // namespace
}  // namespace moestro::box
