// What a prompt's answer will use, by past prompts with the same tokens, and who joins a batch because of it.

#include "common/activation/prompt_experts.h"

#include <gtest/gtest.h>

#include <numeric>

namespace moestro::activation {
namespace {

constexpr EamcShape kShape{2, 4, 1};

/// An answer of ten tokens that all use this expert of every layer.
ActivationMatrix answer_of(uint32_t expert) {
  ActivationMatrix answer(kShape.layers, kShape.experts);
  for (uint32_t layer = 0; layer < 2; ++layer) answer.add(MoeLayerId{layer}, ExpertId{expert}, 10);
  return answer;
}

/// Prompts of tokens 100 and up use expert 1, those of 200 and up expert 2. Token 7 is in all of them.
PromptExperts two_domains(size_t capacity, int each = 10) {
  PromptExperts past(capacity);
  past.begin(kShape);
  for (int i = 0; i < each; ++i) {
    past.add({7, 100 + i, 101 + i}, answer_of(1));
    past.add({7, 200 + i, 201 + i}, answer_of(2));
  }
  return past;
}

TEST(PromptExperts, APromptUsesWhatPastPromptsWithItsRareTokensUsed) {
  const PromptExperts past = two_domains(64);
  const auto likely = past.likely({7, 105, 999});
  ASSERT_NE(likely, nullptr);
  ASSERT_EQ(likely->size(), kShape.cells());
  EXPECT_NEAR((*likely)[1], 1, 0.01) << "layer 0, expert 1";
  EXPECT_NEAR((*likely)[4 + 1], 1, 0.01) << "layer 1, expert 1";
  EXPECT_NEAR(std::accumulate(likely->begin(), likely->end(), 0.0), kShape.layers, 0.02);
}

TEST(PromptExperts, WhatAllPromptsHaveSaysNothing) {
  const PromptExperts past = two_domains(64);
  EXPECT_EQ(past.likely({7}), nullptr);
  EXPECT_EQ(past.likely({1234}), nullptr);
}

TEST(PromptExperts, AFewPastPromptsSayNothing) {
  EXPECT_EQ(two_domains(64, 3).likely({101}), nullptr);
  EXPECT_NE(two_domains(64, 4).likely({101}), nullptr);
}

TEST(PromptExperts, ANewPromptReplacesTheOldest) {
  PromptExperts past = two_domains(8);
  EXPECT_EQ(past.size(), 8u);
  EXPECT_EQ(past.likely({100, 101}), nullptr) << "that one was replaced";
  EXPECT_NE(past.likely({109}), nullptr);
}

TEST(PromptExperts, AnswersOfAnotherShapeAndEmptyOnesAreIgnored) {
  PromptExperts past = two_domains(64);
  past.add({1}, ActivationMatrix(kShape.layers, kShape.experts));
  past.add({1}, ActivationMatrix(3, 5));
  EXPECT_EQ(past.size(), 20u);
  past.begin({3, 5, 1});
  EXPECT_EQ(past.size(), 0u);
}

TEST(PromptExperts, TheLastTokensOfAPromptCountEachOnce) {
  EXPECT_EQ(prompt_tokens(std::vector<TokenId>{5, 3, 5}), (PromptTokens{3, 5}));
  std::vector<TokenId> prompt(PromptExperts::kTokensMax + 1);
  std::iota(prompt.begin(), prompt.end(), 0);
  EXPECT_EQ(prompt_tokens(prompt).size(), PromptExperts::kTokensMax);
  EXPECT_EQ(prompt_tokens(prompt).front(), 1);
}

class NextByOverlap : public ::testing::Test {
 protected:
  NextByOverlap() { running_.add(same_); }
  size_t next(std::vector<OverlapCandidate> candidates) const { return next_by_overlap(running_, candidates); }
  const ExpertShares same_{1, 0, 0, 0}, half_{0.5, 0.5, 0, 0}, most_{0.75, 0, 0.25, 0}, other_{0, 0, 0, 1};
  ExpertUnion running_;
};

TEST_F(NextByOverlap, AddsWhatNoneOfTheBatchUses) {
  EXPECT_DOUBLE_EQ(running_.added_by(same_), 0);
  EXPECT_DOUBLE_EQ(running_.added_by(half_), 0.5);
  EXPECT_DOUBLE_EQ(running_.added_by(other_), 1);
}

TEST_F(NextByOverlap, TheFirstThatSavesHalfOfWhatCanBeSaved) {
  EXPECT_EQ(next({{&other_, 1}, {&same_, 1}}), 1u);
  EXPECT_EQ(next({{&other_, 1}, {&most_, 1}, {&same_, 1}}), 1u) << "it came first, and saves three quarters";
  EXPECT_EQ(next({{&same_, 1}, {&other_, 1}}), 0u);
}

TEST_F(NextByOverlap, NobodyGoesBeforeOneThatHasNoPassesLeft) {
  EXPECT_EQ(next({{&other_, 0}, {&same_, 1}}), 0u);
  EXPECT_EQ(next({{&other_, 1}, {&other_, 0}, {&same_, 1}}), 0u);
}

TEST_F(NextByOverlap, AsTheyCameWhereNothingIsKnown) {
  EXPECT_EQ(next({{nullptr, 1}, {&same_, 1}}), 0u);
  EXPECT_EQ(next({{&other_, 1}, {nullptr, 1}}), 0u);
  const std::vector<OverlapCandidate> candidates{{&other_, 1}, {&same_, 1}};
  EXPECT_EQ(next_by_overlap(ExpertUnion(), candidates), 0u);
}

}  // namespace
}  // namespace moestro::activation
