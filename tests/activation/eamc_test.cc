#include "common/activation/eamc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/activation/cosine.h"
#include "tests/activation/random_requests.h"

namespace moestro::activation {
namespace {

constexpr EamcShape kShape{4, 8, 2};

/// One expert pair a layer, `first` and the one behind it, for all tokens.
ActivationMatrix pair_of(uint32_t first, uint32_t tokens) {
  ActivationMatrix m(kShape.layers, kShape.experts);
  for (uint32_t layer = 0; layer < 4; ++layer)
    m.add(MoeLayerId(layer), ExpertId(first), tokens), m.add(MoeLayerId(layer), ExpertId(first + 1), tokens);
  return m;
}

TEST(Eamc, RowsAreNormalisedWhateverTheirLength) {
  EXPECT_EQ(normalised(pair_of(2, 3), 2), normalised(pair_of(2, 3000), 2));
  ActivationMatrix m(1, 4);
  m.add(MoeLayerId(0), ExpertId(0), 3), m.add(MoeLayerId(0), ExpertId(3), 1);
  EXPECT_EQ(normalised(m, 1), (std::vector<uint8_t>{191, 0, 0, 64}));
}

TEST(Eamc, FillsUpThenReplacesTheMostSimilar) {
  Eamc eamc(kShape, 3);
  for (uint32_t first : {0U, 2U, 4U}) {
    const auto change = eamc.insert(pair_of(first, 5));
    ASSERT_TRUE(change);
    EXPECT_FALSE(change->replaced);
  }
  const auto change =
      eamc.insert(pair_of(3, 7));  // shares expert 3 with entry 1 and expert 4 with entry 2: half of either
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->replaced);
  EXPECT_EQ(change->entry, 1);
  const auto like_last = eamc.insert(pair_of(4, 9));
  ASSERT_TRUE(like_last);
  EXPECT_EQ(like_last->entry, 2);
  EXPECT_EQ(eamc.size(), 3);
}

TEST(Eamc, WhatSaysNothingIsNotTakenIn) {
  Eamc eamc(kShape, 3);
  EXPECT_FALSE(eamc.insert(ActivationMatrix(4, 8)));
  EXPECT_FALSE(eamc.insert(ActivationMatrix(4, 9)));
  EXPECT_FALSE(Eamc(kShape, 0).insert(pair_of(0, 5)));
  EXPECT_EQ(eamc.size(), 0);
}

TEST(Eamc, BothFormsHoldTheSameAndTheNormsAreThoseOfTheFirstRows) {
  RandomRequests requests(kShape, 5, 11);
  Eamc eamc(kShape, 70);
  for (int32_t i = 0; i < 90; ++i) eamc.insert(requests.matrix(i % 5, 3 + i));
  ASSERT_EQ(eamc.size(), 70);
  for (int32_t i = 0; i < eamc.size(); ++i) {
    double squares = 0;
    for (int32_t layer = 0; layer < kShape.layers; ++layer) {
      for (int32_t e = 0; e < kShape.experts; ++e) {
        EXPECT_EQ(eamc.view().column(layer, e)[i], eamc.row(i, layer)[static_cast<size_t>(e)]);
        squares += std::pow(eamc.row(i, layer)[static_cast<size_t>(e)], 2);
      }
      EXPECT_NEAR(eamc.view().inverse_norms(layer)[i], 1 / std::sqrt(squares), 1e-6);
    }
  }
}

TEST(Eamc, MostSimilarAgreesWithACosineInDoublePrecision) {
  RandomRequests requests(kShape, 6, 3);
  Eamc eamc(kShape, 100);
  std::vector<ActivationMatrix> kept;
  for (int32_t i = 0; i < 100; ++i) {
    kept.push_back(requests.matrix(i % 6, 200));
    eamc.insert(kept.back());
  }
  for (int32_t i = 0; i < 30; ++i) {
    const ActivationMatrix query = requests.matrix(i % 6, 200);
    double best = -1;
    for (const ActivationMatrix& m : kept) best = std::max(best, cosine(query, m, kShape.layers));
    const int32_t found = eamc.most_similar(normalised(query, kShape.top_k));
    EXPECT_NEAR(cosine(query, kept[static_cast<size_t>(found)], kShape.layers), best, 1e-3);
  }
}

TEST(Eamc, ChangesMakeACopyOfItElsewhere) {
  RandomRequests requests(kShape, 5, 5);
  Eamc eamc(kShape, 8), copy(kShape, 8);
  for (int32_t i = 0; i < 40; ++i) {
    const auto change = eamc.insert(requests.matrix(i % 5, 20));
    ASSERT_TRUE(change);
    ASSERT_TRUE(copy.set(change->entry, eamc.cells(change->entry)).is_ok());
  }
  ASSERT_EQ(copy.size(), eamc.size());
  for (int32_t i = 0; i < eamc.size(); ++i) EXPECT_TRUE(std::ranges::equal(copy.cells(i), eamc.cells(i)));
}

TEST(Eamc, AForeignChangeIsRefused) {
  Eamc eamc(kShape, 2);
  const std::vector<uint8_t> cells(kShape.cells(), 1);
  EXPECT_EQ(eamc.set(1, cells).code(), Code::kInvalidArgument);
  EXPECT_EQ(eamc.set(-1, cells).code(), Code::kInvalidArgument);
  EXPECT_EQ(eamc.set(0, std::span(cells).first(31)).code(), Code::kInvalidArgument);
  ASSERT_TRUE(eamc.set(0, cells).is_ok());
  ASSERT_TRUE(eamc.set(1, cells).is_ok());
  EXPECT_EQ(eamc.set(2, cells).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::activation
