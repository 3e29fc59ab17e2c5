// Weights that the store finds wrong in memory: what was computed with them is not taken for an answer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::engine::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSequences = 16;

/// One engine without faults, and one whose source finds blobs wrong.
class FoundWrong : public ::testing::Test {
 protected:
  void SetUp() override {
    expected_ = step(plain_, 0);
    ASSERT_TRUE(expected_.is_ok()) << expected_.status().message();
  }
  /// All sequences anew, with two tokens each.
  Result<StepOutcome> step(Bench& bench, uint64_t first_id) {
    const auto vocab = static_cast<uint64_t>(bench.engine().spec().vocab);
    for (uint64_t i = 0; i < kSequences; ++i)
      bench.add(first_id + i, {static_cast<TokenId>((i * 37 + 11) % vocab), static_cast<TokenId>((i * 5 + 2) % vocab)})
          .sample = true;
    return bench.run();
  }
  void expect_right(const Result<StepOutcome>& outcome, const std::string& when) {
    ASSERT_TRUE(outcome.is_ok()) << when << ": " << outcome.status().message();
    for (size_t i = 0; i < kSequences; ++i) expect_right(outcome->sequences[i], i);
  }
  void expect_right(const SequenceOutcome& s, size_t i) {
    ASSERT_TRUE(s.status.is_ok()) << s.status.message();
    EXPECT_EQ(s.sampled.at(0).id, expected_->sequences[i].sampled.at(0).id);
  }
  bool uses(size_t sequence, uint32_t expert) const {
    return std::ranges::any_of(expected_->sequences[sequence].activations, [expert](const auto& count) {
      return count.layer.value == 0 && count.expert.value == expert;
    });
  }
  /// Of layer 0: some use it, others do not.
  uint32_t expert_of_some() const {
    for (uint32_t expert = 0;; ++expert) {
      size_t users = 0;
      for (size_t i = 0; i < kSequences; ++i) users += uses(i, expert);
      if (users > 0 && users < kSequences) return expert;
    }
  }
  uint32_t dense_blob() {
    uint32_t blob = 0;
    while (plain_.source().manifest().blobs[blob].kind != store::BlobKind::kDense) ++blob;
    return blob;
  }
  /// `on_lease` of every lease of an expert.
  Bench with(std::function<void(LateSource&, uint32_t)> on_lease) {
    return Bench(any_fixture(), {}, [&](std::unique_ptr<store::BlobSource> inner) {
      auto source =
          std::make_unique<LateSource>(std::move(inner), LateSource::Options{.on_lease = std::move(on_lease)});
      late_ = source.get();
      return source;
    });
  }
  Bench plain_{any_fixture()};
  Result<StepOutcome> expected_ = unavailable("not run yet");
  LateSource* late_ = nullptr;
};

TEST_F(FoundWrong, AnExpertInUseFailsThoseWhoUsedItByName) {
  const uint32_t expert = expert_of_some();
  const uint32_t wrong = *plain_.source().manifest().expert_blob(MoeLayerId(0), ExpertId(expert), DType::kF32);
  int leases = 0;
  Bench bench = with([&](LateSource& source, uint32_t blob) {
    if (blob == wrong && ++leases == 1) source.find_wrong(blob);
  });
  const auto outcome = step(bench, 0);
  ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
  for (size_t i = 0; i < kSequences; ++i) {
    const SequenceOutcome& s = outcome->sequences[i];
    if (!uses(i, expert)) {
      expect_right(s, i);
      continue;
    }
    EXPECT_EQ(s.status.code(), Code::kCorrupt);
    EXPECT_THAT(s.status.message(), HasSubstr("expert " + std::to_string(expert) + " of MoE layer 0 was found wrong"));
    EXPECT_TRUE(s.sampled.empty());
  }
  expect_right(step(bench, 100), "read again by now");
}

TEST_F(FoundWrong, DenseWeightsInUseEndTheStepByName) {
  const uint32_t dense = dense_blob();
  bool find = false;
  Bench bench = with([&](LateSource& source, uint32_t) {
    if (std::exchange(find, false)) source.find_wrong(dense);
  });
  expect_right(step(bench, 0), "before");
  find = true;
  const auto outcome = step(bench, 100);
  ASSERT_FALSE(outcome.is_ok()) << "the weights of every sequence";
  EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("were found wrong in memory"));
  expect_right(step(bench, 200), "read again by now");
}

TEST_F(FoundWrong, DenseWeightsThatCannotBeReadFailEveryStepUntilTheyCan) {
  Bench bench = with(nullptr);
  late_->find_wrong(dense_blob());
  late_->break_blob(dense_blob());
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto outcome = step(bench, 100 * i);
    ASSERT_FALSE(outcome.is_ok()) << "never in silence";
    EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
    EXPECT_THAT(outcome.status().message(), HasSubstr("loading the dense weights"));
  }
  late_->break_blob(std::nullopt);
  expect_right(step(bench, 900), "mended");
}

TEST_F(FoundWrong, BetweenStepsDenseWeightsAreLeasedAnewAndNothingFails) {
  Bench bench = with(nullptr);
  expect_right(step(bench, 0), "before");
  late_->find_wrong(dense_blob());
  expect_right(step(bench, 100), "after");
}

}  // namespace
}  // namespace moestro::engine::testing
