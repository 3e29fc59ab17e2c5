// A StreamDecoder that continues a prompt gives decode(prompt + generated) less what decode(prompt) shows.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/utf8.h"
#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/support/places.h"
#include "tests/tokenizer/load_tokenizer.h"
#include "tests/tokenizer/make_tokenizer.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro {
namespace {

using Ids = std::vector<TokenId>;
using moestro::testing::Json;
using moestro::testing::make;

std::string continued(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> generated,
                      bool give_unsettled = false) {
  StreamDecoder decoder(tokenizer, true);
  decoder.prime(prompt);
  if (give_unsettled) decoder.give_unsettled();
  std::string text;
  for (const TokenId id : generated) {
    const std::string piece = decoder.push(id);
    EXPECT_EQ(find_invalid_utf8(piece), std::string::npos) << "half a character";
    text += piece;
  }
  return text + decoder.finish();
}

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The ids of single bytes: "<0xF0>" where there is byte fallback, else the byte-level alphabet's.
Ids byte_ids(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char c : bytes) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(c)));
    std::string level;
    tok::append_byte_level(level, std::string(1, c));
    auto id = tokenizer.id_of(name);
    if (!id) id = tokenizer.id_of(level);
    EXPECT_TRUE(id.has_value()) << name;
    ids.push_back(id.value_or(0));
  }
  return ids;
}

class PrimedByKind : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer =
        test::load_tokenizer(test::source_dir() / "tests/fixtures/tokenizers" / (std::string(GetParam()) + ".json"));
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    tokenizer_.emplace(std::move(*tokenizer));
  }
  Ids ids(const std::string& text) const { return *tokenizer_->encode(text, true); }
  /// The ids of "Q" inside a text.
  Ids q() const { return byte_level() ? byte_ids(*tokenizer_, "Q") : Ids{*tokenizer_->id_of("Q")}; }
  bool byte_level() const { return !tokenizer_->id_of("<0x41>").has_value(); }
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(PrimedByKind, ThePromptsEndIsNotGivenAgain) {
  for (const std::string prompt : {"Hello 🙂", "你好", "🙂", "x👩‍👩‍👧‍👦", "ends with é", "a\n", "plain", "Hello 🙂 "}) {
    EXPECT_EQ(continued(*tokenizer_, ids(prompt), q()), "Q") << prompt;
    EXPECT_EQ(continued(*tokenizer_, ids(prompt), {}), "") << prompt;
    EXPECT_EQ(continued(*tokenizer_, ids(prompt), byte_ids(*tokenizer_, "好🙂")), "好🙂") << prompt;
  }
}

TEST_P(PrimedByKind, ACharacterBegunInThePromptIsGivenWhole) {
  const std::string smile = "🙂";
  for (size_t cut = 1; cut < smile.size(); ++cut) {
    const Ids prompt = joined(ids("Hello 你"), byte_ids(*tokenizer_, smile.substr(0, cut)));
    const Ids rest = joined(byte_ids(*tokenizer_, smile.substr(cut)), q());
    EXPECT_EQ(continued(*tokenizer_, prompt, rest), "🙂Q") << cut;
    EXPECT_EQ(continued(*tokenizer_, prompt, q()), "Q") << cut << ": the prompt's own U+FFFD is the prompt's";
    EXPECT_EQ(continued(*tokenizer_, prompt, {}), "") << cut;
    StreamDecoder decoder(*tokenizer_, true);
    EXPECT_EQ(decoder.prime(prompt).substr(0, 3), "\uFFFD") << cut;
  }
}

TEST_P(PrimedByKind, UnsettledTextComesIfItIsWanted) {
  const Ids prompt = joined(ids("Hello "), byte_ids(*tokenizer_, "\xF0\x9F"));
  const Ids rest = joined(byte_ids(*tokenizer_, "\x99\x82"), q());
  EXPECT_EQ(continued(*tokenizer_, prompt, rest, true), "🙂Q");
  EXPECT_EQ(continued(*tokenizer_, prompt, q(), true), byte_level() ? "\uFFFDQ" : "\uFFFD\uFFFDQ");
}

TEST_P(PrimedByKind, ABrokenByteAfterAWholePromptLeavesThePromptAlone) {
  EXPECT_EQ(continued(*tokenizer_, ids("Hello 🙂"), joined(byte_ids(*tokenizer_, "\xE4"), q())), "\uFFFDQ");
}

INSTANTIATE_TEST_SUITE_P(Kinds, PrimedByKind, ::testing::Values("gpt2", "qwen2", "llama3", "olmo", "llama2", "mixtral"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Primed, APromptOfOneBrokenByteIsAStartOfText) {
  const Tokenizer tokenizer = make(testing::llama2_like({{"▁", "a"}}));
  const Ids a{*tokenizer.id_of("▁a")};
  EXPECT_EQ(continued(tokenizer, byte_ids(tokenizer, "\xF0"), a), " a") << "text stands before the space";
  EXPECT_EQ(continued(tokenizer, byte_ids(tokenizer, "🙂"), a), " a");
  EXPECT_EQ(continued(tokenizer, Ids{1}, a), "a") << "a skipped token is no text";
}

TEST(Primed, TheRestOfWhatDecodeGives) {
  std::mt19937 random(11);
  Json stripped = testing::llama2_like({{"▁", "a"}});
  stripped["decoder"] = Json::parse(R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},
    {"type":"Replace","pattern":{"String":"aab"},"content":"_"},{"type":"Strip","content":"b","start":2,"stop":3}]})");
  Json regex = testing::llama2_like({});
  regex["decoder"] = Json::parse(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Replace","pattern":{"Regex":"a+"},"content":"_"}]})");
  size_t compared = 0;
  for (const Json& json : {testing::gpt2_like({}), testing::llama2_like({{"▁", "a"}}), stripped, regex}) {
    const Tokenizer tokenizer = make(json);
    for (int round = 0; round < 2000; ++round) {
      std::string bytes;
      for (size_t i = random() % 6; i > 0; --i) {
        static const std::string kParts[] = {"a", "b", "🙂", "你", "\xF0\x9F", "\x99\x82", "\xC3"};
        bytes += kParts[random() % 7];
      }
      Ids all;
      for (const char c : bytes) {
        const auto letter = tokenizer.id_of(std::string(1, c));
        all.push_back(static_cast<unsigned char>(c) < 0x80 && letter ? *letter
                                                                     : byte_ids(tokenizer, std::string(1, c))[0]);
      }
      const size_t cut = all.empty() ? 0 : random() % (all.size() + 1);
      const Ids prompt(all.begin(), all.begin() + static_cast<ptrdiff_t>(cut)),
          rest(all.begin() + static_cast<ptrdiff_t>(cut), all.end());
      const std::string before = tokenizer.decode(prompt, true), whole = tokenizer.decode(all, true);
      if (!whole.starts_with(before)) continue;  // what follows has changed the prompt's own text
      ++compared;
      ASSERT_EQ(continued(tokenizer, prompt, rest), whole.substr(before.size()))
          << Json(lossy_utf8(bytes)) << " cut at " << cut;
    }
  }
  EXPECT_GT(compared, 4000u);
}

}  // namespace
}  // namespace moestro
