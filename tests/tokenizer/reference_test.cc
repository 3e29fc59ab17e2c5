// The tokenizer against Hugging Face tokenizers, on the files of tests/fixtures/tokenizers (scripts/make_fixtures.py
// writes them).

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/support/places.h"
#include "tests/tokenizer/load_tokenizer.h"

namespace moestro {
namespace {

std::filesystem::path folder() { return test::source_dir() / "tests/fixtures/tokenizers"; }

class TokenizerReference : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = test::load_tokenizer(folder() / (std::string(GetParam()) + ".json"));
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    tokenizer_.emplace(std::move(*tokenizer));
    std::ifstream in(folder() / (std::string(GetParam()) + ".cases.json"));
    file_ = nlohmann::json::parse(in, nullptr, false);
    ASSERT_TRUE(file_.is_object()) << "no cases in " << folder();
    ASSERT_GE(file_["cases"].size(), 80u);
  }

  std::optional<Tokenizer> tokenizer_;
  nlohmann::json file_;
};

using Numbers = std::vector<int64_t>;

Numbers numbers(const std::vector<TokenId>& ids) {
  return {ids.begin(), ids.end()};
}

std::vector<TokenId> special_ids(const nlohmann::json& c) {
  std::vector<TokenId> ids;
  for (const auto& id : c["special_ids"]) ids.push_back(static_cast<TokenId>(id.get<int64_t>()));
  return ids;
}

TEST_P(TokenizerReference, EncodesTheSameIds) {
  for (const nlohmann::json& c : file_["cases"]) {
    const auto text = c["text"].get<std::string>();
    for (const bool special : {false, true}) {
      const auto ids = tokenizer_->encode(text, special);
      ASSERT_TRUE(ids.is_ok()) << c["text"] << ": " << ids.status().message();
      EXPECT_EQ(numbers(*ids), c[special ? "special_ids" : "ids"].get<Numbers>()) << c["text"];
    }
  }
}

TEST_P(TokenizerReference, DecodesTheSameText) {
  for (const nlohmann::json& c : file_["cases"]) {
    EXPECT_EQ(tokenizer_->decode(special_ids(c), false), c["decoded"].get<std::string>()) << c["text"];
    EXPECT_EQ(tokenizer_->decode(special_ids(c), true), c["plain"].get<std::string>()) << c["text"];
  }
}

TEST_P(TokenizerReference, StreamsTheSameTextInWholeCharacters) {
  for (const nlohmann::json& c : file_["cases"]) {
    StreamDecoder stream(*tokenizer_, true);
    std::string joined;
    const auto take = [&](const std::string& piece) {
      EXPECT_NO_THROW((void)nlohmann::json(piece).dump()) << "half a character in a piece of " << c["text"];
      joined += piece;
    };
    for (const TokenId id : special_ids(c)) take(stream.push(id));
    take(stream.finish());
    EXPECT_EQ(joined, c["plain"].get<std::string>()) << c["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerReference,
                         ::testing::Values("gpt2", "qwen2", "llama3", "olmo", "llama2", "mixtral", "deepseek", "kimi",
                                           "bert", "unigram", "unigram_bytes", "t5", "xlm_r", "nllb",
                                           "word_level"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace moestro
