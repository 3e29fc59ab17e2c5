// Where the prompt ends and the answer begins: with every kind of tokenizer, nothing of the prompt is given as
// generated text, and the offsets of log-probabilities point at the tokens' texts.

#include <gtest/gtest.h>


#include "common/utf8.h"
#include "orchestrator/api/text_cursor.h"
#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/unicode.h"
#include "tests/orchestrator/api_fixture.h"
#include "tests/support/places.h"
#include "tests/tokenizer/load_tokenizer.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro::orchestrator {
namespace {

using Ids = std::vector<TokenId>;
using nlohmann::json;

/// `text` from its `n`th code point on.
std::string_view from_code_point(std::string_view text, size_t n) {
  size_t at = 0;
  while (n-- > 0 && at < text.size()) at += tok::code_point_at(text, at).bytes;
  return text.substr(at);
}

class PromptEnd : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer =
        test::load_tokenizer(test::source_dir() / "tests/fixtures/tokenizers" / (std::string(GetParam()) + ".json"));
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    tokenizer_.emplace(std::move(*tokenizer));
  }
  Ids ids(const std::string& text, bool special = true) const { return *tokenizer_->encode(text, special); }
  Ids bytes(std::string_view text) const {
    Ids ids;
    for (const char c : text) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(c)));
      std::string level;
      tok::append_byte_level(level, std::string(1, c));
      const auto id = tokenizer_->id_of(name);
      ids.push_back(id ? *id : tokenizer_->id_of(level).value());
    }
    return ids;
  }
  struct Answer {
    std::string echo, text;
    std::vector<ScoredToken> tokens;
  };
  Answer answer(const Ids& prompt, const Ids& generated, const std::string* echoed) const {
    Choice choice(*tokenizer_, &no_stop_, prompt, echoed);
    for (const TokenId id : generated) choice.push({id, {}});
    choice.finish();
    return {choice.echo(), choice.take_text(), choice.take_tokens()};
  }
  /// Every token whose own text is whole stands where its offset says.
  static void expect_offsets(const std::string& text, const std::vector<ScoredToken>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].text.find("\uFFFD") != std::string::npos) continue;  // a part of a character has no text of its own
      EXPECT_TRUE(from_code_point(text, tokens[i].text_offset).starts_with(tokens[i].text))
          << json(text) << " token " << i << " " << json(tokens[i].text) << " at " << tokens[i].text_offset;
    }
  }
  std::optional<Tokenizer> tokenizer_;
  const std::vector<std::string> no_stop_;
};

TEST_P(PromptEnd, NothingOfThePromptIsGenerated) {
  for (const std::string prompt : {"Hello 🙂", "你好", "🙂", "ends with é", "plain"}) {
    EXPECT_EQ(answer(ids(prompt), ids("Q", false), nullptr).text.find("🙂"), std::string::npos) << prompt;
    EXPECT_EQ(answer(ids(prompt), bytes("Q好"), nullptr).text, "Q好") << prompt;
    EXPECT_EQ(answer(ids(prompt), {}, nullptr).text, "") << prompt;
    const Answer echoed = answer(ids(prompt), bytes("Q"), &prompt);
    EXPECT_EQ(echoed.echo + echoed.text, prompt + "Q");
  }
}

TEST_P(PromptEnd, ACharacterOfBothIsShownOnce) {
  Ids prompt = ids("Hi ");
  const Ids begin = bytes("\xF0\x9F");
  prompt.insert(prompt.end(), begin.begin(), begin.end());
  EXPECT_EQ(answer(prompt, bytes("\x99\x82!"), nullptr).text, "🙂!");
  EXPECT_EQ(answer(prompt, bytes("!"), nullptr).text, tokenizer_->id_of("<0x21>") ? "\uFFFD" : "!")
      << "in a run of bytes a broken one breaks the others, as in the reference";

  const std::string shown = tokenizer_->decode(prompt, /*skip_special=*/true);
  ASSERT_TRUE(shown.ends_with("\uFFFD"));
  const Answer whole = answer(prompt, bytes("\x99\x82!好"), &shown);
  EXPECT_EQ(whole.echo + whole.text, "Hi 🙂!好");
  std::vector<size_t> offsets;
  for (const ScoredToken& t : whole.tokens) offsets.push_back(t.text_offset);
  EXPECT_EQ(offsets, (std::vector<size_t>{3, 3, 4, 5, 5, 5}));
  const Answer nothing = answer(prompt, {}, &shown);
  EXPECT_EQ(nothing.echo + nothing.text, shown);
}

TEST_P(PromptEnd, OffsetsOfGeneratedTokens) {
  const std::string prompt = "Ünï 🙂";
  for (const std::string said : {"the end of 你好, 🙂🙂 it", "é", "Hello world"}) {
    const Answer with = answer(ids(prompt), ids(said, false), &prompt);
    expect_offsets(with.echo + with.text, with.tokens);
    const Answer without = answer(ids(prompt), ids(said, false), nullptr);
    expect_offsets(without.text, without.tokens);
    const Answer alone = answer(Ids{}, ids(said, false), nullptr);
    EXPECT_EQ(alone.text, said);
    expect_offsets(alone.text, alone.tokens);
  }
}

TEST_P(PromptEnd, OffsetsOfPromptTokens) {
  for (const std::string prompt :
       {"Hello wörld, 你好 again", "🙂 a", " two  spaces", "the 日本語 of it", "a<s>b <|endoftext|>c"}) {
    TextCursor cursor(*tokenizer_, prompt);
    std::vector<ScoredToken> tokens;
    size_t added = ids(prompt).size() - ids(prompt, false).size();  // a BOS
    for (const TokenId id : ids(prompt)) {
      PlacedToken placed = cursor.next(id);
      if (added == 0) {
        tokens.push_back({id, {}, true, placed.code_points, placed.text});
        continue;
      }
      --added;
      EXPECT_EQ(placed.code_points, 0u) << "what the tokenizer adds takes no room";
      EXPECT_EQ(placed.text, tokenizer_->token(id));
    }
    ASSERT_FALSE(tokens.empty());
    expect_offsets(prompt, tokens);
    const ScoredToken& last = tokens.back();
    EXPECT_EQ(last.text_offset,
              count_code_points(prompt) - std::max<size_t>(1, count_code_points(last.text)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PromptEnd, ::testing::Values("gpt2", "qwen2", "llama3", "olmo", "llama2", "mixtral"),
                         [](const auto& param) { return std::string(param.param); });

TEST(TextCursor, NormalisedTextIsFoundAgain) {
  json file = moestro::testing::gpt2_like({});
  file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = std::move(Tokenizer::from_json(file.dump())).value();
  const std::string text = "e\u0301x";  // two code points that become one
  TextCursor cursor(tokenizer, text);
  std::vector<size_t> offsets;
  const Ids ids = *tokenizer.encode(text, true);
  for (const TokenId id : ids) offsets.push_back(cursor.next(id).code_points);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 0, 2}));
}

TEST(TextCursor, BytesOfABrokenCharacterStandAtItsReplacement) {
  const Tokenizer tokenizer = std::move(Tokenizer::from_json(moestro::testing::gpt2_like({}).dump())).value();
  const Ids ids{'a', 0xF0, 0x9F, 0x99, 'b'};
  const std::string text = tokenizer.decode(ids, true);
  ASSERT_EQ(text, "a\uFFFDb");
  TextCursor cursor(tokenizer, text);
  std::vector<size_t> offsets;
  for (const TokenId id : ids) offsets.push_back(cursor.next(id).code_points);
  EXPECT_EQ(offsets, (std::vector<size_t>{0, 1, 1, 1, 2}));
}

/// Over HTTP's bodies, with byte fallback: the id of byte b is b + 3, BOS is 1.
ServedModel fallback_model() {
  ServedModel m = testing::byte_model();
  m.tokenizer = std::move(Tokenizer::from_json(moestro::testing::llama2_like({{"▁", "a"}}).dump())).value();
  m.bos_token = "<s>";
  m.vocab = m.tokenizer.vocab_size();
  return m;
}

class FallbackApi : public testing::ApiTest {
 protected:
  FallbackApi() : ApiTest(fallback_model()) { join(); }
  json choice(const json& request) {
    const auto exchange = complete(request);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json()["choices"][0];
  }
};

TEST_F(FallbackApi, AnEmojiAtThePromptsEndIsNotRepeated) {
  says_ = {std::string(1, 'Q' + 3)};
  EXPECT_EQ(choice({{"prompt", "a 🙂"}, {"max_tokens", 1}})["text"], "Q");
  EXPECT_EQ(choice({{"prompt", "a 🙂"}, {"max_tokens", 1}, {"echo", true}})["text"], "a 🙂Q");
}

TEST_F(FallbackApi, OffsetsOfAnEchoCountWhatItShows) {
  says_ = {std::string(1, 'Q' + 3)};
  const json c = choice({{"prompt", "a 🙂b"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 0}});
  EXPECT_EQ(c["text"], "a 🙂bQ");
  EXPECT_EQ(c["logprobs"]["tokens"],
            json::parse(R"(["<s>", "a", " ", "\uFFFD", "\uFFFD", "\uFFFD", "\uFFFD", "b", "Q"])"));
  EXPECT_EQ(c["logprobs"]["text_offset"], (json{0, 0, 1, 2, 2, 2, 2, 3, 4}));
}

}  // namespace
}  // namespace moestro::orchestrator
