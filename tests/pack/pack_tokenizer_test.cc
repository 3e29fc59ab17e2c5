// `moestro pack` refuses what could not be served before it writes a byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>


#include "services/cli/pack/pack_command.h"
#include "services/command_line/command_line.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

class PackTokenizer : public ::testing::Test {
 protected:
  PackTokenizer() { testing::write_checkpoint(dir_ / "src", {}); }  // its vocab_size is 40
  void write(const std::string& name, const std::string& text) const { testing::write_text(dir_ / "src" / name, text); }
  int pack() {
    command_line::App app("moestro", "moestro");
    CommandResult result;
    add_pack_command(app, result);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(app.parse("pack " + (dir_ / "src").string() + " -o " + (dir_ / "pack").string() + " --jobs 1").exit_code,
              std::nullopt);
    ::testing::internal::GetCapturedStdout();
    error_ = ::testing::internal::GetCapturedStderr();
    return result.exit_code;
  }
  void expect_refused(const std::string& words) {
    EXPECT_EQ(pack(), 1) << words;
    EXPECT_THAT(error_, HasSubstr(words));
    EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "pack")) << "nothing is begun";
  }
  testing::TemporaryDirectory dir_;
  std::string error_;
};

TEST_F(PackTokenizer, AMissingOrUnreadableTokenizer) {
  std::filesystem::remove(dir_ / "src" / "tokenizer.json");
  expect_refused("tokenizer.json: is missing");
  write("tokenizer.json", "");
  expect_refused("tokenizer.json");
  write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 11421896\n");
  expect_refused("tokenizer.json: is a Git LFS pointer");
  write("tokenizer.json", "garbage");
  expect_refused("not valid JSON");
  write("tokenizer.json", R"({"model": {"type": "Syllables", "vocab": []}})");
  expect_refused("the model is of the kind 'Syllables'");
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}})");
  expect_refused("the id 0 is given to two tokens");
}

TEST_F(PackTokenizer, ATokenBeyondTheEmbedding) {
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 40}, "merges": []}})");
  expect_refused("the token 'b' has id 40, but config.json has a vocab_size of 40");
  write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 39}, "merges": []}})");
  EXPECT_EQ(pack(), 0) << error_;
}

TEST_F(PackTokenizer, ATokenOfTheConfigOnly) {
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"3": {"content": "<|user|>"}}})");
  expect_refused("'added_tokens_decoder' gives id 3 to '<|user|>'; tokenizer.json does not");
}

TEST_F(PackTokenizer, TheTemplateFileIsTakenOver) {
  write("chat_template.jinja", "{{ messages[0].content }}");
  write("chat_template.json", R"({"chat_template": "of the processor"})");
  write("special_tokens_map.json", "{}");
  std::filesystem::create_directory(dir_ / "src" / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "{{ tools }}");
  ASSERT_EQ(pack(), 0) << error_;
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "special_tokens_map.json"), "{}");
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "tool_use.jinja"), "{{ tools }}");
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "chat_template.json"), R"({"chat_template": "of the processor"})");
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "chat_template.jinja"), "{{ messages[0].content }}");
}

// The server would say it only to those who ask for chat.
TEST_F(PackTokenizer, ABrokenTemplateIsSaid) {
  write("chat_template.jinja", "{% if messages %}");
  ASSERT_EQ(pack(), 0) << error_;
  EXPECT_THAT(error_, HasSubstr("the chat template cannot be used, so the server will refuse chat requests; "
                                "completions work: "));
}

}  // namespace
}  // namespace moestro::cli
