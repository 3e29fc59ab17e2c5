// `moestro pack FILE.gguf`: the pack can be served, and its tokenizer is that of the file's metadata.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrator/api/served_model.h"
#include "services/cli/pack/pack_command.h"
#include "services/command_line/command_line.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PackGguf : public ::testing::Test {
 protected:
  int pack(const std::filesystem::path& source) {
    command_line::App app("moestro", "moestro");
    CommandResult result;
    add_pack_command(app, result);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(app.parse("pack " + source.string() + " -o " + (dir_ / "pack").string() + " --jobs 1").exit_code,
              std::nullopt);
    ::testing::internal::GetCapturedStdout();
    error_ = ::testing::internal::GetCapturedStderr();
    return result.exit_code;
  }
  orchestrator::ServedModel served(const std::string& fixture) {
    EXPECT_EQ(pack(test::source_dir() / "tests/fixtures/gguf" / fixture), 0) << error_;
    auto model = orchestrator::ServedModel::load("m", dir_ / "pack");
    EXPECT_TRUE(model) << model.status().message();
    return std::move(*model);
  }
  /// A copy of a fixture with `from` replaced by `to`, which is as long.
  std::filesystem::path edited(const std::string& fixture, const std::string& from, const std::string& to) {
    std::string bytes = testing::read_text(test::source_dir() / "tests/fixtures/gguf" / fixture / (fixture + ".gguf"));
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    testing::write_text(dir_ / "edited.gguf", bytes.replace(at, from.size(), to));
    return dir_ / "edited.gguf";
  }
  testing::TemporaryDirectory dir_;
  std::string error_;
};

TEST_F(PackGguf, WithATokenizerOfSentencePiece) {
  const auto model = served("llama_q8_0");
  EXPECT_THAT(error_, HasSubstr("weights stay in the formats that the source has them in"));
  // <s> "▁the" "▁" "in" <0x0A> <0xC3> <0xA9>
  const auto ids = model.tokenizer.encode("the in\n\u00e9", true);
  ASSERT_TRUE(ids) << ids.status().message();
  EXPECT_THAT(*ids, ElementsAre(1, 8, 16, 9, 3, 4, 5));
  EXPECT_EQ(model.tokenizer.decode(*ids, true), "the in\n\u00e9");
  EXPECT_EQ(model.bos_token, "<s>");
  EXPECT_THAT(model.eos_ids, ElementsAre(2));
  EXPECT_TRUE(model.chat_template) << model.chat_template_missing;
}

TEST_F(PackGguf, WithATokenizerOfBytes) {
  const auto model = served("qwen2moe_split");
  // "the" "Ġthe" "Ġ" "in", a control token, digits one by one, a token of the user's
  const auto ids = model.tokenizer.encode("the the in<|im_start|>12<tool>", true);
  ASSERT_TRUE(ids) << ids.status().message();
  EXPECT_THAT(*ids, ElementsAre(81, 82, 4, 83, 1, 59, 60, 3));
  EXPECT_EQ(model.tokenizer.decode(*ids, true), "the the in12<tool>");
  EXPECT_FALSE(model.tokenizer.id_of("[PAD100]")) << "what fills the embedding up is no token";
}

TEST_F(PackGguf, WithTheConfigOfTheOriginalBesideIt) {
  std::filesystem::create_directory(dir_ / "src");
  std::filesystem::copy_file(test::source_dir() / "tests/fixtures/gguf/llama_q8_0/llama_q8_0.gguf",
                             dir_ / "src" / "a.gguf");
  testing::write_text(dir_ / "src" / "config.json", R"({"model_type": "mixtral"})");
  EXPECT_EQ(pack(dir_ / "src"), 0) << error_;
}

// The server would say it only to those who ask for chat.
TEST_F(PackGguf, ABrokenChatTemplateIsSaid) {
  EXPECT_EQ(pack(edited("llama_q8_0", "endfor", "endfur")), 0) << error_;
  EXPECT_THAT(error_, HasSubstr("the chat template cannot be used, so the server will refuse chat requests; "
                                "completions work: "));
  std::filesystem::remove_all(dir_ / "pack");
  EXPECT_EQ(pack(edited("llama_q8_0", "endfor", "endfor")), 0) << error_;
  EXPECT_THAT(error_, Not(HasSubstr("chat template")));
}

TEST_F(PackGguf, AMergeOfTokensThatAreNotThereIsNamedInItsFile) {
  EXPECT_EQ(pack(edited("dots1_q8_0", "th e", "th q")), 1);
  EXPECT_THAT(error_, HasSubstr((dir_ / "edited.gguf").string() + ": its metadata as tokenizer.json: "));
  EXPECT_THAT(error_, HasSubstr("merge 1: 'th' + 'q' names a token that is not in the vocabulary"));
  EXPECT_THAT(error_, Not(HasSubstr("moestro-pack-")));
}

TEST_F(PackGguf, BytesThatAreNoTextDoNotReachTheTerminal) {
  EXPECT_EQ(pack(edited("dots1_q8_0", "dots1.expert_weights_norm", "dots1.expert_weights_n\xff\xc3\x1b")), 1);
  EXPECT_THAT(error_, HasSubstr("metadata 'dots1.expert_weights_n\ufffd\ufffd?' is not supported"));
  EXPECT_EQ(pack(edited("dots1_q8_0", "<tool>", "<to\xf0l>")), 1);
  EXPECT_THAT(error_, HasSubstr("'tokenizer.ggml.tokens': the token '<to\ufffdl>' is not UTF-8; the file is damaged"));
}

TEST_F(PackGguf, IsRefusedInOneLineBeforeAnythingIsWritten) {
  testing::write_text(dir_ / "x.gguf", "GGUF, but not really");
  EXPECT_EQ(pack(dir_ / "x.gguf"), 1);
  EXPECT_THAT(error_, HasSubstr("x.gguf: "));
  EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "pack"));
}

}  // namespace
}  // namespace moestro::cli
