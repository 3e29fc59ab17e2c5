#include "common/activation/eamc_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/activation/random_requests.h"

namespace moestro::activation {
namespace {

/// The same in double precision, from the matrices, without any sum that is carried along.
class SlowMatcher {
 public:
  SlowMatcher(const Eamc& eamc, double request_tokens)
      : eamc_(eamc), request_tokens_max_(request_tokens), request_(eamc.shape().cells()) {
    begin();
  }
  void begin() { iteration_.assign(eamc_.shape().cells(), 0), layer_ = -1; }
  void add_row(int32_t layer, const std::vector<ActivationCount>& counts) {
    for (const ActivationCount& c : counts)
      iteration_[static_cast<size_t>(layer * eamc_.shape().experts) + c.expert.value] = c.tokens;
    layer_ = layer;
  }
  void end() {
    for (size_t i = 0; i < request_.size(); ++i) request_[i] += iteration_[i];
    ++tokens_;
    begin();
  }
  double score(int32_t entry) const {
    const double weight = tokens_ == 0 ? 0 : std::min(1.0, request_tokens_max_ / tokens_);
    const int32_t rows = tokens_ == 0 ? layer_ + 1 : eamc_.shape().layers;
    double dot = 0, squares = 0;
    for (size_t i = 0; i < static_cast<size_t>(rows * eamc_.shape().experts); ++i) {
      const double cell = eamc_.cells(entry)[i];
      dot += (weight * request_[i] + iteration_[i]) * cell;
      squares += cell * cell;
    }
    return squares == 0 ? 0 : dot / std::sqrt(squares);
  }

 private:
  const Eamc& eamc_;
  const double request_tokens_max_;
  std::vector<double> request_, iteration_;
  double tokens_ = 0;
  int32_t layer_ = -1;
};

void expect_same(EamcMatcher& fast, const SlowMatcher& slow, const Eamc& eamc, int32_t count) {
  std::vector<double> scores;
  for (int32_t i = 0; i < eamc.size(); ++i) scores.push_back(slow.score(i));
  std::ranges::sort(scores, std::greater<>());
  const auto best = fast.best(count);
  const auto some = std::ranges::count_if(scores, [](double s) { return s > 0; });
  ASSERT_EQ(static_cast<int64_t>(best.size()), std::min<int64_t>(count, some));
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_NEAR(best[i].score, scores[i], 1e-4 * (1 + scores[i]));
    EXPECT_NEAR(best[i].score, slow.score(best[i].entry), 1e-4 * (1 + scores[i]));
  }
}

TEST(EamcMatcher, AgreesWithTheSlowOneAtEveryLayer) {
  for (const EamcShape shape : {EamcShape{3, 8, 2}, EamcShape{5, 60, 7}}) {
    RandomRequests requests(shape, 4, 17);
    Eamc eamc(shape, 150);
    for (int32_t i = 0; i < 130; ++i) eamc.insert(requests.matrix(i % 4, 12));
    EamcMatcher fast(eamc.view(), 6);
    SlowMatcher slow(eamc, 6);
    for (int32_t token = 0; token < 12; ++token) {
      fast.begin_iteration();
      for (int32_t layer = 0; layer < shape.layers; ++layer) {
        const auto chosen = requests.token(1, layer);
        fast.add_row(layer, chosen, 1);
        slow.add_row(layer, chosen);
        expect_same(fast, slow, eamc, 9);
      }
      fast.end_iteration();
      slow.end();
    }
  }
}

TEST(EamcMatcher, EntriesThatChangeWhileASequenceRunsAreMatchedAsTheyAre) {
  const EamcShape shape{3, 8, 2};
  RandomRequests requests(shape, 4, 19);
  Eamc eamc(shape, 10);
  EamcMatcher fast(eamc.view(), 50);
  SlowMatcher slow(eamc, 50);
  for (int32_t token = 0; token < 30; ++token) {
    fast.begin_iteration();
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      const auto chosen = requests.token(2, layer);
      fast.add_row(layer, chosen, 1);
      slow.add_row(layer, chosen);
    }
    expect_same(fast, slow, eamc, 5);
    fast.end_iteration();
    slow.end();
    eamc.insert(requests.matrix(token % 4, 15));
    if (token == 20) eamc = Eamc(shape, 100);
  }
  EXPECT_EQ(eamc.size(), 9);
}

TEST(EamcMatcher, FindsTheDomain) {
  const EamcShape shape{6, 16, 2};
  RandomRequests requests(shape, 3, 23);
  Eamc eamc(shape, 60);
  for (int32_t i = 0; i < 60; ++i) eamc.insert(requests.matrix(i % 3, 40));
  EamcMatcher matcher(eamc.view(), 24);
  for (int32_t token = 0; token < 4; ++token) {
    matcher.begin_iteration();
    for (int32_t layer = 0; layer < shape.layers; ++layer) matcher.add_row(layer, requests.token(2, layer), 1);
    matcher.end_iteration();
  }
  int32_t of_domain = 0;
  for (const EamcMatch& m : matcher.best(10)) of_domain += m.entry % 3 == 2 ? 1 : 0;
  EXPECT_GE(of_domain, 9);
}

TEST(EamcMatcher, APromptWeighsAsItsShares) {
  const EamcShape shape{2, 4, 1};
  Eamc eamc(shape, 2);
  ActivationMatrix a(2, 4), b(2, 4);
  for (uint32_t layer : {0U, 1U}) a.add(MoeLayerId(layer), ExpertId(0), 10), b.add(MoeLayerId(layer), ExpertId(3), 10);
  eamc.insert(a), eamc.insert(b);
  EamcMatcher matcher(eamc.view(), 24);
  matcher.begin_iteration();
  matcher.add_row(0, std::vector<ActivationCount>{{MoeLayerId(0), ExpertId(0), 100}, {MoeLayerId(0), ExpertId(3), 300}},
                  400);
  const auto best = matcher.best(2);
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].entry, 1);
  EXPECT_NEAR(best[0].score / best[1].score, 3, 0.05);
}

TEST(EamcMatcher, NothingIsLikeAnEmptyQueryAndNoEntriesMatchNothing) {
  const EamcShape shape{2, 4, 1};
  Eamc eamc(shape, 2);
  EamcMatcher matcher(eamc.view(), 24);
  matcher.begin_iteration();
  EXPECT_TRUE(matcher.best(4).empty());
  matcher.add_row(0, std::vector<ActivationCount>{{MoeLayerId(0), ExpertId(1), 1}}, 1);
  EXPECT_TRUE(matcher.best(4).empty());
}

}  // namespace
}  // namespace moestro::activation
