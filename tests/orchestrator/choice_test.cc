#include "orchestrator/api/choice.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kSpecial = 256;

/// Every byte is a token and its value the token's id; kSpecial is <|end|>.
const Tokenizer& bytes() {
  static const Tokenizer tokenizer = [] {
    auto json = moestro::testing::gpt2_like({});
    json["added_tokens"] = {moestro::testing::added_token(kSpecial, "<|end|>")};
    return std::move(Tokenizer::from_json(json.dump())).value();
  }();
  return tokenizer;
}
TokenId id(char c) { return static_cast<TokenId>(static_cast<unsigned char>(c)); }

class ChoiceTest : public ::testing::Test {
 protected:
  Choice make(std::vector<std::string> stop, size_t text_before = 0, ChoiceOptions options = {}) {
    stop_ = std::move(stop);
    before_.assign(text_before, 'p');
    return Choice(bytes(), &stop_, {}, text_before == 0 ? nullptr : &before_, std::move(options));
  }
  /// All that the tokens of `ids` make the text.
  std::string text_of(const std::vector<TokenId>& ids, ChoiceOptions options) {
    Choice choice = make({}, 0, std::move(options));
    for (const TokenId one : ids) choice.push({one, {}});
    choice.finish();
    return choice.take_text();
  }
  /// Pushes the bytes of `text` until one completes a stop string; the number of tokens it took.
  static size_t push(Choice& choice, const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i)
      if (choice.push({id(text[i]), {}})) return i + 1;
    return text.size();
  }
  static std::vector<size_t> offsets(Choice& choice) {
    std::vector<size_t> all;
    for (const ScoredToken& t : choice.take_tokens()) all.push_back(t.text_offset);
    return all;
  }
  std::vector<std::string> stop_;
  std::string before_;
};

TEST_F(ChoiceTest, TextIsReadyAtOnceWhereNothingStops) {
  Choice choice = make({});
  EXPECT_FALSE(choice.push({id('a'), {}}));
  EXPECT_EQ(choice.take_text(), "a");
  EXPECT_EQ(choice.take_text(), "") << "what was taken is gone";
  EXPECT_FALSE(choice.push({id('b'), {}}));
  EXPECT_EQ(choice.take_text(), "b");
  EXPECT_EQ(choice.tokens(), 2u);
}

TEST_F(ChoiceTest, StopStringAcrossTokensEndsTheTextBeforeIt) {
  Choice choice = make({"END"});
  EXPECT_EQ(push(choice, "ab ENDcd"), 6u) << "the token that completes the stop string ends it";
  EXPECT_EQ(choice.take_text(), "ab ");
  EXPECT_EQ(choice.tokens(), 6u) << "the tokens of the stop string were sampled and count";
  EXPECT_THAT(offsets(choice), ElementsAre(0, 1, 2)) << "but they have no text of the answer";
}

TEST_F(ChoiceTest, NothingFollowsAStopString) {
  Choice choice = make({"."});
  push(choice, "a.");
  EXPECT_TRUE(choice.push({id('z'), {}}));
  choice.finish();
  EXPECT_EQ(choice.take_text(), "a");
  EXPECT_EQ(choice.tokens(), 2u);
  EXPECT_THAT(offsets(choice), ElementsAre(0));
}

TEST_F(ChoiceTest, WhatMightBeginAStopStringIsHeldBack) {
  Choice choice = make({"STOP"});
  push(choice, "xST");
  EXPECT_EQ(choice.take_text(), "x");
  push(choice, "A");
  EXPECT_EQ(choice.take_text(), "STA") << "it did not become a stop string";
  push(choice, "SS");
  EXPECT_EQ(choice.take_text(), "S") << "only the second S can begin one";
  EXPECT_EQ(push(choice, "TOP"), 3u);
  EXPECT_EQ(choice.take_text(), "");
}

TEST_F(ChoiceTest, HeldBackTextOverlapsItself) {
  Choice choice = make({"aab"});
  EXPECT_EQ(push(choice, "aaaab"), 5u);
  EXPECT_EQ(choice.take_text(), "aa");
}

TEST_F(ChoiceTest, FinishGivesWhatWasHeldBack) {
  Choice choice = make({"STOP"});
  push(choice, "xSTO");
  EXPECT_EQ(choice.take_text(), "x");
  choice.finish();
  EXPECT_EQ(choice.take_text(), "STO");
}

TEST_F(ChoiceTest, TheEarliestOfSeveralStopStringsCounts) {
  Choice choice = make({"cd", "b", "zzzz"});
  EXPECT_EQ(push(choice, "abcd"), 2u);
  EXPECT_EQ(choice.take_text(), "a");

  Choice nested = make({"xyz", "y"});
  EXPECT_EQ(push(nested, "wxy"), 3u);
  EXPECT_EQ(nested.take_text(), "wx");
}

TEST_F(ChoiceTest, OffsetsCountTheTextWithWhatCameBefore) {
  Choice choice = make({}, 10);
  push(choice, "abc");
  EXPECT_THAT(offsets(choice), ElementsAre(10, 11, 12));
  EXPECT_THAT(offsets(choice), IsEmpty()) << "what was taken is gone";
}

TEST_F(ChoiceTest, StopAfterAnEchoedPromptKeepsOffsets) {
  Choice choice = make({"!"}, 10);
  push(choice, "ab!");
  EXPECT_EQ(choice.take_text(), "ab");
  EXPECT_THAT(offsets(choice), ElementsAre(10, 11));
}

TEST_F(ChoiceTest, ACharacterOfSeveralTokensComesWhole) {
  Choice choice = make({"ö"});
  const std::string e = "é";  // begins with the byte that begins "ö"
  push(choice, e.substr(0, 1));
  EXPECT_EQ(choice.take_text(), "");
  push(choice, e.substr(1));
  EXPECT_EQ(choice.take_text(), "é");
  EXPECT_EQ(push(choice, "aöb"), 3u);
  EXPECT_EQ(choice.take_text(), "a");
}

TEST_F(ChoiceTest, AHalfCharacterAtTheEndIsReplaced) {
  Choice choice = make({"S"});
  push(choice, "a\xC3");
  choice.finish();
  EXPECT_EQ(choice.take_text(), "a\uFFFD");
}

TEST_F(ChoiceTest, TheSameTextHoweverItIsTaken) {
  const std::string text = "the cat sat on the mat, the end of it";
  for (const std::string stop : {"the end", "t,", "at o", "nowhere", "it"}) {
    Choice whole = make({stop});
    const size_t used = push(whole, text);
    whole.finish();
    Choice pieces(bytes(), &stop_, {}, nullptr);
    std::string joined;
    for (size_t i = 0; i < used; ++i) {
      pieces.push({id(text[i]), {}});
      joined += pieces.take_text();
    }
    pieces.finish();
    joined += pieces.take_text();
    EXPECT_EQ(joined, text.substr(0, text.find(stop))) << stop;
    EXPECT_EQ(whole.take_text(), joined) << stop;
  }
}

TEST_F(ChoiceTest, TokensThatAStopStringMayCutOffAreHeldBack) {
  Choice choice = make({"STOP"});
  push(choice, "xST");
  EXPECT_THAT(offsets(choice), ElementsAre(0));
  push(choice, "A");
  EXPECT_THAT(offsets(choice), ElementsAre(1, 2, 3)) << "it did not become a stop string";
  EXPECT_EQ(push(choice, "STOP"), 4u);
  EXPECT_THAT(offsets(choice), IsEmpty());
  Choice ended = make({"STOP"});
  push(ended, "xST");
  EXPECT_THAT(offsets(ended), ElementsAre(0));
  ended.finish();
  EXPECT_THAT(offsets(ended), ElementsAre(1, 2)) << "no stop string can come any more";
}

TEST_F(ChoiceTest, TheSameTokensHoweverTheyAreTaken) {
  // Tokens of one and of several characters, parts of a character, and tokens without text.
  const Tokenizer tokenizer = [] {
    auto json = moestro::testing::gpt2_like({{"a", "b"}, {"b", "a"}, {"ab", "ab"}});
    const auto special = static_cast<int>(json["model"]["vocab"].size());
    json["added_tokens"] = {moestro::testing::added_token(special, "<|end|>")};
    return std::move(Tokenizer::from_json(json.dump())).value();
  }();
  const std::vector<TokenId> ids{id('a'), id('b'), id(' '), 256, 257, 258, *tokenizer.id_of("<|end|>"), 0xC3, 0xA9};
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  size_t cut = 0;
  for (int round = 0; round < 2000; ++round) {
    stop_.assign(1 + pick(2), "");
    for (std::string& s : stop_)
      for (size_t n = 1 + pick(4); n > 0; --n) s += std::vector<std::string>{"a", "b", "b", " ", "é"}[pick(5)];
    const ChoiceOptions options{.min_tokens = static_cast<int64_t>(pick(3)),
                                .include_stop = pick(2) == 0,
                                .show_special = pick(4) == 0};
    Choice whole(tokenizer, &stop_, {}, nullptr, options), pieces(tokenizer, &stop_, {}, nullptr, options);
    std::vector<ScoredToken> taken;
    const auto take = [&] { std::ranges::move(pieces.take_tokens(), std::back_inserter(taken)); };
    for (int i = 0; i < 12; ++i) {
      const TokenId next = ids[pick(ids.size())];
      const bool over = whole.push({next, {}});
      EXPECT_EQ(pieces.push({next, {}}), over);
      if (pick(3) > 0) take();
      if (over) break;
    }
    whole.finish();
    pieces.finish();
    take();
    cut += whole.stopped_at() != nullptr;
    const auto expected = whole.take_tokens();
    ASSERT_EQ(taken.size(), expected.size()) << "round " << round;
    for (size_t i = 0; i < taken.size(); ++i) {
      EXPECT_EQ(taken[i].id, expected[i].id) << "round " << round;
      EXPECT_EQ(taken[i].text_offset, expected[i].text_offset) << "round " << round;
    }
  }
  EXPECT_GT(cut, 500u);
}

TEST_F(ChoiceTest, TheStopStringIsKeptOnRequest) {
  Choice choice = make({"zz", "END"}, 0, {.include_stop = true});
  EXPECT_EQ(push(choice, "ab ENDcd"), 6u);
  EXPECT_EQ(choice.take_text(), "ab END");
  ASSERT_NE(choice.stopped_at(), nullptr);
  EXPECT_EQ(*choice.stopped_at(), "END");
  EXPECT_THAT(offsets(choice), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(ChoiceTest, AStopStringAmongTheFirstTokensDoesNotCount) {
  Choice choice = make({"ab"}, 0, {.min_tokens = 2});
  EXPECT_EQ(push(choice, "abcabc"), 5u) << "the first one ends within two tokens";
  EXPECT_EQ(choice.take_text(), "abc");
  Choice across = make({"ab"}, 0, {.min_tokens = 2});
  EXPECT_EQ(push(across, "xab"), 3u) << "it ends behind them";
  EXPECT_EQ(across.take_text(), "x");
  Choice inside = make({"b", "abc"}, 0, {.min_tokens = 2});
  EXPECT_EQ(push(inside, "abxb"), 4u) << "the first b is held for the longer string, and ended too early";
  EXPECT_EQ(inside.take_text(), "abx");
}

TEST_F(ChoiceTest, ATokenThatEndsItIsInNoText) {
  EXPECT_EQ(text_of({'a', 'b'}, {.ends = {'b'}}), "a");
  EXPECT_EQ(text_of({'a', 'b'}, {.ends = {'b'}, .include_stop = true}), "ab");
  EXPECT_EQ(text_of({'a', kSpecial}, {.ends = {kSpecial}, .show_special = true}), "a");
  EXPECT_EQ(text_of({'a', kSpecial}, {.ends = {kSpecial}, .include_stop = true, .show_special = true}), "a<|end|>");
}

TEST_F(ChoiceTest, SpecialTokensAreShownOnRequest) {
  const std::vector<TokenId> tokens{'a', kSpecial, 'b'};
  EXPECT_EQ(text_of(tokens, {}), "ab");
  EXPECT_EQ(text_of(tokens, {.show_special = true}), "a<|end|>b");
  EXPECT_EQ(text_of(tokens, {.shown = {"<|other|>", "<|end|>"}}), "a<|end|>b");
  EXPECT_EQ(text_of(tokens, {.shown = {"<|other|>"}}), "ab");
}

TEST_F(ChoiceTest, ScoresStayWithTheirTokens) {
  Choice choice = make({});
  choice.push({id('a'), {-0.5f, {{id('a'), -0.5f}, {id('b'), -1.0f}}}});
  const auto tokens = choice.take_tokens();
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].id, id('a'));
  EXPECT_TRUE(tokens[0].has_score);
  EXPECT_FLOAT_EQ(tokens[0].score.logprob, -0.5f);
  EXPECT_EQ(tokens[0].score.best.size(), 2u);
}

}  // namespace
}  // namespace moestro::orchestrator
