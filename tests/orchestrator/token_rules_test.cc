#include "orchestrator/scheduler/token_rules.h"

#include <gmock/gmock.h>

#include <deque>

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kVocab = 40;  // more than a word of a mask, and no whole number of them
constexpr TokenId kEnd = 39;

using Rules = TokenRulesOptions;

std::vector<TokenId> all_but(std::vector<TokenId> without) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kVocab; ++id)
    if (std::ranges::find(without, id) == without.end()) ids.push_back(id);
  return ids;
}

std::vector<TokenId> ids_of(const TokenConstraint::Mask& mask) {
  if (!mask) return all_but({});
  EXPECT_EQ(mask->size(), 2u);
  EXPECT_EQ(mask->back() >> (kVocab - 32), 0u) << "a worker refuses bits beyond the vocabulary";
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kVocab; ++id)
    if (((*mask)[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
  return ids;
}

RuledConstraint sequence(Rules options, std::shared_ptr<TokenConstraint> text = nullptr) {
  options.vocab = kVocab;
  options.ends = {kEnd};
  return RuledConstraint(std::make_shared<const TokenRules>(options), std::move(text));
}

std::vector<TokenId> next_of(RuledConstraint& s) {
  const auto mask = s.allowed();
  EXPECT_TRUE(mask.is_ok()) << mask.status().message();
  return ids_of(*mask);
}

/// Wants these tokens and nothing else.
class Wants final : public TokenConstraint {
 public:
  explicit Wants(std::deque<std::vector<TokenId>> steps) : steps_(std::move(steps)) {}
  Result<std::optional<Mask>> allowed_within(int64_t& work) override {
    if (work <= 0) return std::optional<Mask>();
    auto mask = std::make_shared<TokenMask>(2, 0u);
    for (const TokenId id : steps_.front()) (*mask)[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return std::optional<Mask>(std::move(mask));
  }
  bool accept(TokenId token) override {
    const bool wanted = std::ranges::find(steps_.front(), token) != steps_.front().end();
    steps_.pop_front();
    return wanted;
  }
  bool complete() const override { return steps_.empty(); }

 private:
  std::deque<std::vector<TokenId>> steps_;
};

TEST(TokenRules, OnlyTheAllowedTokens) {
  auto s = sequence({.allowed = {3, 35, 3}});
  EXPECT_THAT(next_of(s), ElementsAre(3, 35));
  EXPECT_TRUE(s.accept(3));
  EXPECT_THAT(next_of(s), ElementsAre(3, 35));
  ASSERT_TRUE(s.allowed_ahead());
  EXPECT_THAT(ids_of(*s.allowed_ahead()), ElementsAre(3, 35));
}

TEST(TokenRules, NoEndBeforeSoManyTokens) {
  auto s = sequence({.min_tokens = 2});
  EXPECT_EQ(next_of(s), all_but({kEnd}));
  ASSERT_TRUE(s.allowed_ahead());
  EXPECT_EQ(ids_of(*s.allowed_ahead()), all_but({kEnd})) << "of the second token";
  s.accept(1);
  EXPECT_EQ(next_of(s), all_but({kEnd}));
  ASSERT_TRUE(s.allowed_ahead());
  EXPECT_EQ(*s.allowed_ahead(), nullptr) << "of the third: no mask to send";
  s.accept(1);
  EXPECT_EQ(next_of(s), all_but({}));
}

TEST(TokenRules, BadWords) {
  auto s = sequence({.bad_words = {{7}, {1, 2}, {1, 1, 3}, {9, 8}}});
  EXPECT_EQ(next_of(s), all_but({7}));
  EXPECT_FALSE(s.allowed_ahead()) << "what may follow hangs on the token";
  s.accept(1);
  EXPECT_EQ(next_of(s), all_but({7, 2}));
  s.accept(1);
  EXPECT_EQ(next_of(s), all_but({7, 2, 3}));
  s.accept(9);
  EXPECT_EQ(next_of(s), all_but({7, 8}));
  s.accept(1);
  EXPECT_EQ(next_of(s), all_but({7, 2})) << "what came before the 9 is no part of it";
}

TEST(TokenRules, OneTokenWordsHangOnNothing) {
  auto s = sequence({.bad_words = {{7}, {36}}});
  ASSERT_TRUE(s.allowed_ahead());
  EXPECT_EQ(ids_of(*s.allowed_ahead()), all_but({7, 36}));
}

TEST(TokenRules, WhatAGrammarAllowsAsWell) {
  auto s = sequence({.allowed = {1, 2, 3, kEnd}, .min_tokens = 1, .bad_words = {{2, 3}}},
                    std::make_shared<Wants>(std::deque<std::vector<TokenId>>{{2, 5, kEnd}, {1, 3}}));
  EXPECT_FALSE(s.allowed_ahead());
  EXPECT_THAT(next_of(s), ElementsAre(2));
  EXPECT_FALSE(s.complete());
  EXPECT_TRUE(s.accept(2));
  EXPECT_THAT(next_of(s), ElementsAre(1));
  EXPECT_FALSE(s.accept(2)) << "the grammar's word";
  EXPECT_TRUE(s.complete());
}

TEST(TokenRules, AGrammarThatMustEndEnds) {
  auto s = sequence({.min_tokens = 9}, std::make_shared<Wants>(std::deque<std::vector<TokenId>>{{kEnd}}));
  EXPECT_THAT(next_of(s), ElementsAre(kEnd));
}

TEST(TokenRules, WorkThatIsNotDoneIsNotDone) {
  auto s = sequence({.allowed = {1}}, std::make_shared<Wants>(std::deque<std::vector<TokenId>>{{1}}));
  int64_t work = 0;
  const auto mask = s.allowed_within(work);
  ASSERT_TRUE(mask.is_ok());
  EXPECT_EQ(*mask, std::nullopt);
}

TEST(TokenRules, NothingLeftIsAnError) {
  auto s = sequence({.allowed = {1}, .bad_words = {{1, 1}}});
  EXPECT_THAT(next_of(s), ElementsAre(1));
  s.accept(1);
  EXPECT_EQ(s.allowed().status().code(), Code::kInvalidArgument);
  TokenRulesOptions none{.vocab = kVocab, .allowed = {kEnd}, .ends = {kEnd}, .min_tokens = 1};
  EXPECT_TRUE(allows_nothing(TokenRules(none).mask(0)));
  EXPECT_FALSE(allows_nothing(TokenRules(none).mask_at_end()));
  none.bad_words = {{kEnd}};
  EXPECT_TRUE(allows_nothing(TokenRules(none).mask_at_end()));
}

}  // namespace
}  // namespace moestro::orchestrator
