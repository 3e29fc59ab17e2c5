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

TEST_F(PackGguf, IsRefusedInOneLineBeforeAnythingIsWritten) {
  testing::write_text(dir_ / "x.gguf", "GGUF, but not really");
  EXPECT_EQ(pack(dir_ / "x.gguf"), 1);
  EXPECT_THAT(error_, HasSubstr("x.gguf: "));
  EXPECT_EQ(std::count(error_.begin(), error_.end(), '\n'), 1) << error_;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "pack"));
}

}  // namespace
}  // namespace moestro::cli
