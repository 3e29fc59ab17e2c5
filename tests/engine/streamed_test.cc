// Dense weights that take turns in memory: every model computes what it does when all of them stay.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_bench.h"
#include "tests/engine/streaming_source.h"

namespace moestro::engine::testing {
namespace {

using ::testing::HasSubstr;

Bench streaming(const Fixture& fixture, DType dtype, size_t places, StreamingSource** source = nullptr,
                ScheduleKind schedule = ScheduleKind::kLayerwise) {
  BenchOptions options{.experts = dtype, .dense = dtype};
  options.engine.schedule = schedule;
  options.engine.cut.count = schedule == ScheduleKind::kExpertPipeline ? 2 : 0;
  return Bench(fixture, std::move(options), [&](std::unique_ptr<store::BlobSource> inner) {
    auto made = std::make_unique<StreamingSource>(std::move(inner), places);
    if (source != nullptr) *source = made.get();
    return made;
  });
}

class Streamed : public ::testing::TestWithParam<Fixture> {};

TEST_P(Streamed, ComputesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const size_t places : {1, 2, 3}) {
      StreamingSource* source = nullptr;
      Bench plain(GetParam(), {.experts = dtype, .dense = dtype});
      Bench streamed = streaming(GetParam(), dtype, places, &source);
      const std::vector<TokenId> prompt = GetParam().prompts(std::string(dtype_name(dtype))).front().ids;
      std::vector<double> wanted, found;
      EXPECT_EQ(streamed.greedy(prompt, 4, &found), plain.greedy(prompt, 4, &wanted)) << places;
      EXPECT_EQ(found, wanted) << places;
      EXPECT_EQ(streamed.score({prompt}, 3), plain.score({prompt}, 3)) << places;
      EXPECT_GE(source->asks(), 5 * source->streamed().size()) << "each step asks for every layer";
      EXPECT_TRUE(source->idle()) << "between steps nothing is leased";
    }
}

TEST_P(Streamed, TheExpertPipelineSharesALayerAmongMicroBatches) {
  const std::vector<std::vector<TokenId>> prompts(4, GetParam().prompts("f32").front().ids);
  StreamingSource* source = nullptr;
  Bench plain(GetParam());
  Bench streamed = streaming(GetParam(), DType::kF32, 2, &source, ScheduleKind::kExpertPipeline);
  EXPECT_EQ(streamed.score(prompts, 3), plain.score(prompts, 3));
  EXPECT_TRUE(source->idle());
}

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Streamed, ::testing::ValuesIn(fixtures()), fixture_name);

class StreamedFaults : public ::testing::Test {
 protected:
  StreamedFaults() : bench_(streaming(any_fixture(), DType::kF32, 2, &source_)) {
    prompt_ = any_fixture().prompts("f32").front().ids;
    wanted_ = Bench(any_fixture()).greedy(prompt_, 3);
    last_ = source_->streamed().back();
  }
  Result<StepOutcome> step(uint64_t id) {
    bench_.add(id, prompt_).sample = true;
    return bench_.run();
  }
  StreamingSource* source_ = nullptr;
  Bench bench_;
  std::vector<TokenId> prompt_, wanted_;
  uint32_t last_ = 0;
};

TEST_F(StreamedFaults, AStepWhoseLayerCannotBeReadFailsByNameAndLaterOnesRun) {
  source_->break_blob(last_);
  const auto failed = step(1);
  ASSERT_FALSE(failed.is_ok());
  EXPECT_THAT(failed.status().message(), HasSubstr("dense weights of layer "));
  EXPECT_THAT(failed.status().message(), HasSubstr("does not match its checksum"));
  EXPECT_TRUE(source_->idle());
  source_->break_blob(std::nullopt);
  EXPECT_EQ(bench_.greedy(prompt_, 3), wanted_);
}

TEST_F(StreamedFaults, WhatWasComputedWithWrongBytesIsDropped) {
  source_->find_wrong(last_);
  const auto failed = step(1);
  ASSERT_FALSE(failed.is_ok());
  EXPECT_THAT(failed.status().message(), HasSubstr("were found wrong in memory"));
  source_->find_wrong(std::nullopt);
  EXPECT_EQ(bench_.greedy(prompt_, 3), wanted_);
}

TEST_F(StreamedFaults, AStepSaysWhatItReadOfThem) {
  const auto outcome = step(1);
  ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
  uint64_t bytes = 0;
  for (const uint32_t blob : source_->streamed()) bytes += source_->manifest().blobs[blob].length;
  EXPECT_EQ(outcome->dense_bytes, bytes);
}

}  // namespace
}  // namespace moestro::engine::testing
