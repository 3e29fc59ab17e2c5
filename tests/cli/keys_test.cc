// API keys: every command that speaks HTTP sends the one it was given, and none prints it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"

namespace moestro::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kLine = R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})";
constexpr const char* kBatch =
    R"({"id":"batch_1","object":"batch","status":"completed","output_file_id":"file_2","request_counts":{"total":1,"completed":1,"failed":0},"data":[]})";

class Keys : public testing::Test {
 protected:
  Keys() : server_([this](const TinyRequest& r) { return answer(r); }) {}
  ~Keys() override {
    ::unsetenv("MOESTRO_API_KEY");
    ::unsetenv("OPENAI_API_KEY");
  }
  TinyReply answer(const TinyRequest& r) {
    const std::lock_guard lock(mutex_);
    seen_.insert(r.authorization);
    if (refuse_) return {401, R"({"error":{"message":"the API key is not known here"}})"};
    if (r.path == "/v1/models") return {200, R"({"data":[{"id":"demo"}]})"};
    if (r.path == "/v1/files") return {200, R"({"id":"file_1"})"};
    if (r.path.starts_with("/v1/batches")) return {200, kBatch};
    if (r.body.find("\"stream\":true") != std::string::npos)
      return {200, "data: {\"choices\":[{\"text\":\"t\"}]}\n\ndata: [DONE]\n\n"};
    return {200, R"({"choices":[{"text":"t"}],"usage":{"prompt_tokens":1,"completion_tokens":1}})"};
  }
  /// Runs each command; the Authorization headers that came.
  std::set<std::string> ask_all(const std::vector<std::string>& more, int exit_code) {
    write_file(dir_ / "in.jsonl", std::string(kLine) + "\n");
    const std::string in = (dir_ / "in.jsonl").string(), out = (dir_ / "out.jsonl").string();
    const std::vector<std::vector<std::string>> commands = {{"complete", "hi"},
                                                            {"complete", "hi", "--json"},
                                                            {"chat"},
                                                            {"batch", "run", in, "-o", out},
                                                            {"batch", "submit", in},
                                                            {"batch", "status", "batch_1"},
                                                            {"batch", "results", "batch_1", "-o", out + "2"},
                                                            {"batch", "cancel", "batch_1"},
                                                            {"batch", "list"},
                                                            {"health"}};
    std::set<std::string> all;
    for (auto words : commands) {
      seen_.clear();
      std::filesystem::remove(out);
      words.insert(words.end(), {"--url", server_.url()});
      words.insert(words.end(), more.begin(), more.end());
      const Ran ran = run_moestro(words, "hi\n");
      EXPECT_EQ(ran.exit_code, exit_code) << testing::PrintToString(words) << ran.err;
      EXPECT_THAT(ran.out + ran.err, Not(HasSubstr("sesame"))) << "the key is printed";
      if (exit_code != 0) EXPECT_THAT(ran.err, HasSubstr("401")) << testing::PrintToString(words);
      EXPECT_EQ(seen_.size(), 1u) << testing::PrintToString(words) << testing::PrintToString(seen_);
      all.insert(seen_.begin(), seen_.end());
    }
    return all;
  }

  TempDir dir_;
  std::mutex mutex_;
  std::set<std::string> seen_;
  bool refuse_ = false;
  TinyServer server_;
};

using Seen = std::set<std::string>;

TEST_F(Keys, EveryCommandSendsTheOneItIsGiven) {
  EXPECT_EQ(ask_all({"--api-key", "open-sesame"}, 0), Seen{"Bearer open-sesame"});
}

TEST_F(Keys, OrTheOneOfTheEnvironment) {
  ::setenv("MOESTRO_API_KEY", "env-sesame", 1);
  EXPECT_EQ(ask_all({}, 0), Seen{"Bearer env-sesame"});
  EXPECT_EQ(ask_all({"--api-key", "open-sesame"}, 0), Seen{"Bearer open-sesame"}) << "the option outranks it";
}

TEST_F(Keys, AndNoneThatIsMeantForAnother) {
  ::setenv("OPENAI_API_KEY", "their-sesame", 1);
  EXPECT_EQ(ask_all({}, 0), Seen{""});
}

TEST_F(Keys, ARefusalSaysWhereTheKeyGoes) {
  refuse_ = true;
  EXPECT_EQ(ask_all({"--api-key", "wrong-sesame"}, 1), Seen{"Bearer wrong-sesame"});
  const Ran ran =
      run_moestro({"batch", "run", (dir_ / "in.jsonl").string(), "-o", (dir_ / "o").string(), "--url", server_.url()});
  EXPECT_THAT(ran.err, HasSubstr("MOESTRO_API_KEY"));
  EXPECT_EQ(read_file(dir_ / "o"), "") << "with the right key the line gets another answer: this is none";
}

TEST_F(Keys, AKeyOverAPlainConnectionToAnotherMachineIsRemarkedUpon) {
  const Ran ran = run_moestro({"health", "--url", "http://moestro.invalid:1", "--api-key", "open-sesame"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, testing::AllOf(HasSubstr("unencrypted"), Not(HasSubstr("sesame"))));
}

}  // namespace
}  // namespace moestro::test
