#include <gmock/gmock.h>

#include <random>

#include "common/utf8.h"
#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/make_tokenizer.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro {
namespace {

using namespace moestro::testing;  // NOLINT

std::string streamed(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_EQ(find_invalid_utf8(piece), std::string::npos) << "half a character";
    text += piece;
  }
  return text + decoder.finish();
}

TEST(Decode, RoundTripsThroughBytes) {
  const std::string text = "héllo 你好 😀\n\tx";
  for (const Json& json : {gpt2_like({{"h", "Ã"}}), llama2_like({{"▁", "h"}})}) {
    const Tokenizer tokenizer = make(json);
    EXPECT_EQ(tokenizer.decode(*tokenizer.encode(text, true), true), text);
  }
}

TEST(Decode, AByteLevelStreamHoldsTheFirstBytesOfACharacter) {
  const Tokenizer tokenizer = make(gpt2_like({}));
  const auto ids = *tokenizer.encode("a😀b", false);
  StreamDecoder decoder(tokenizer, true);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(decoder.push(id));
  EXPECT_THAT(pieces, ::testing::ElementsAre("a", "", "", "", "😀", "b"));
}

TEST(Decode, WhatEndsInsideACharacterShowsAReplacement) {
  const Tokenizer tokenizer = make(gpt2_like({}));
  auto ids = *tokenizer.encode("é", false);
  ids.pop_back();
  EXPECT_EQ(tokenizer.decode(ids, false), "\uFFFD");
  EXPECT_EQ(streamed(tokenizer, ids, false), "\uFFFD");
}

TEST(Decode, ABrokenRunOfFallbackBytesIsOneReplacementPerByte) {
  const Tokenizer tokenizer = make(llama2_like({}));
  const std::vector<TokenId> ids = {*tokenizer.id_of("a"), *tokenizer.id_of("<0xC3>"),
                                    *tokenizer.id_of("<0xA9>"), *tokenizer.id_of("<0xC3>"),
                                    *tokenizer.id_of("b")};
  EXPECT_EQ(tokenizer.decode(ids, false), "a\uFFFD\uFFFD\uFFFDb") << "as the reference does";
}

TEST(Decode, OnlyTheStartOfATextLosesItsSpace) {
  const Tokenizer tokenizer = make(llama2_like({{"▁", "a"}}));
  const TokenId a = *tokenizer.id_of("▁a");
  EXPECT_EQ(tokenizer.decode(std::vector{a, a}, false), "a a");
  EXPECT_EQ(tokenizer.decode(std::vector{1, a, a}, true), "a a") << "a skipped BOS does not count";

  StreamDecoder continued(tokenizer, true);
  continued.prime(std::vector{1, a});
  EXPECT_EQ(continued.push(a), " a");
}

TEST(Decode, WhetherASpaceIsDroppedIsKnownBeforeIt) {
  const Tokenizer tokenizer = make(llama2_like({{"▁", "a"}}));
  const TokenId a = *tokenizer.id_of("▁a");
  const auto drops = [](const Tokenizer& t, const std::vector<TokenId>& prompt, bool skip_special) {
    StreamDecoder decoder(t, skip_special);
    decoder.prime(prompt);
    return decoder.drops_space();
  };
  EXPECT_TRUE(drops(tokenizer, {}, true));
  EXPECT_TRUE(drops(tokenizer, {1}, true));
  EXPECT_FALSE(drops(tokenizer, {1}, false));
  EXPECT_FALSE(drops(tokenizer, {1, a}, true));
  StreamDecoder begun(tokenizer, true);
  EXPECT_EQ(begun.push(a), "a");
  EXPECT_FALSE(begun.drops_space());
  EXPECT_FALSE(drops(make(gpt2_like({{"Ġ", "w"}})), {}, true));
}

TEST(Decode, SpecialTokensAreShownOnlyIfAsked) {
  const Tokenizer tokenizer = make(llama2_like({}));
  const std::vector<TokenId> ids = {1, *tokenizer.id_of("a"), 2};
  EXPECT_EQ(tokenizer.decode(ids, true), "a");
  EXPECT_EQ(tokenizer.decode(ids, false), "<s>a</s>");
}

TEST(Decode, UnknownIdsGiveNoText) {
  const Tokenizer tokenizer = make(gpt2_like({}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{-1, 1 << 30, 256}, false), "");
  EXPECT_EQ(tokenizer.token_bytes(-5), "");
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

TEST(Decode, OneTokenForLogprobs) {
  const Tokenizer bytes = make(gpt2_like({{"Ġ", "w"}}));
  EXPECT_EQ(bytes.token_text(*bytes.id_of("Ġw")), " w");
  EXPECT_EQ(bytes.token_bytes(*bytes.id_of("Ã")), "\xC3");
  EXPECT_EQ(bytes.token_text(*bytes.id_of("Ã")), "\uFFFD");
  const Tokenizer fallback = make(llama2_like({{"▁", "a"}}));
  EXPECT_EQ(fallback.token_bytes(*fallback.id_of("<0xC3>")), "\xC3");
  EXPECT_EQ(fallback.token_text(*fallback.id_of("▁a")), " a") << "with its space: it stands inside a text";
}

TEST(Decode, AStreamGivesWhatDecodeGives) {
  std::mt19937 random(7);
  Json stripped = llama2_like({{"▁", "a"}});
  stripped["decoder"] = Json::parse(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Replace","pattern":{"String":"aab"},"content":"_"},{"type":"Strip","content":"b","start":2,"stop":3}]})");
  Json metaspace = llama2_like({{"▁", "a"}});
  metaspace["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  Json regex = llama2_like({});
  regex["decoder"] = Json::parse(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Replace","pattern":{"Regex":"a+"},"content":"_"}]})");
  for (const Json& json : {gpt2_like({}), llama2_like({{"▁", "a"}}), stripped, metaspace, regex}) {
    const Tokenizer tokenizer = make(json);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> ids;
      for (size_t i = random() % 20; i > 0; --i) {
        const bool common = random() % 2 == 0;
        const std::string letter(1, static_cast<char>('a' + random() % 2));
        ids.push_back(common
                          ? *tokenizer.id_of(letter)
                          : static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.vocab_size())));
      }
      ASSERT_EQ(streamed(tokenizer, ids, false), tokenizer.decode(ids, false));
      ASSERT_EQ(streamed(tokenizer, ids, true), tokenizer.decode(ids, true));
    }
  }
}

TEST(Decode, StripAndReplaceOverTheWholeText) {
  Json json = llama2_like({});
  json["decoder"] = Json::parse(R"({"type":"Sequence","decoders":[{"type":"Fuse"},
    {"type":"Replace","pattern":{"String":"aab"},"content":"_"},{"type":"Strip","content":"b","start":2,"stop":3}]})");
  const Tokenizer tokenizer = make(json);
  std::vector<TokenId> ids;
  for (const char c : std::string("bbbaaabcbbbb")) ids.push_back(*tokenizer.id_of(std::string(1, c)));
  EXPECT_EQ(tokenizer.decode(ids, false), "ba_cb");
}

}  // namespace
}  // namespace moestro
