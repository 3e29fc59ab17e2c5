// A step that another one overtakes between its layers, and the one that overtakes it: both say bitwise what they say
// alone.

#include <gtest/gtest.h>

#include "tests/engine/late_source.h"
#include "tests/engine/overtaking.h"

namespace moestro::engine::testing {
namespace {

using namespace overtaking;

constexpr int kSteps = 3;

BenchOptions parking(BenchOptions options = {}) {
  options.engine.overtaking_tokens_max = 16;
  return options;
}

BenchOptions in_turn() {
  BenchOptions options;
  options.engine.micro_batches = MicroBatches::kInTurn;
  return options;
}

BenchOptions pipeline(int64_t micro_batches, PipelineParts parts = {}) {
  BenchOptions options;
  options.engine.schedule = ScheduleKind::kExpertPipeline;
  options.engine.cut = {.count = micro_batches};
  options.engine.parts = parts;
  return options;
}

/// Plays large steps that small ones overtake at every layer, and compares both with what they say alone.
void expect_equal(Bench& bench, const Fixture& model, const BenchOptions& alone, uint32_t seed) {
  Overtaker overtaker(bench, seed + 1);
  const Said parked = play(bench, seed, false, kSteps);
  const auto layers = static_cast<int>(bench.engine().spec().layers.size());
  EXPECT_EQ(overtaker.taken, kSteps * layers) << "before the first layer, and between any two";
  BenchOptions options{.deterministic = alone.deterministic, .engine = alone.engine};
  Bench large(model, {.deterministic = alone.deterministic, .engine = alone.engine}), small(model, std::move(options));
  EXPECT_TRUE(play(large, seed, false, kSteps) == parked) << "a step that parks says something else";
  EXPECT_TRUE(play(small, seed + 1, true, overtaker.taken) == overtaker.said) << "a step that overtakes does";
  EXPECT_GT(parked.scores.size(), 10u);
  EXPECT_GT(parked.counts.size(), 10u);
}

TEST(Overtaking, BothStepsSayBitwiseWhatTheySayAlone) {
  for (const Fixture& model : fixtures()) {
    SCOPED_TRACE(model.name);
    if (model.has_states()) continue;
    uint32_t seed = 1;
    for (const BenchOptions& alone : {BenchOptions{}, in_turn(), pipeline(3), pipeline(3, {.by_expert = false}),
                                      pipeline(2, {.release_early = false})}) {
      SCOPED_TRACE(++seed);
      Bench resident(model, parking({.engine = alone.engine}));
      expect_equal(resident, model, alone, seed);
      LateSource* source = nullptr;
      Bench late(model, parking({.engine = alone.engine}), [&](std::unique_ptr<store::BlobSource> inner) {
        auto made = std::make_unique<LateSource>(std::move(inner), LateSource::Options{.seed = seed});
        source = made.get();
        return made;
      });
      expect_equal(late, model, alone, seed);
      EXPECT_EQ(source->experts_held(), 0u);
      EXPECT_EQ(source->outstanding(), 0u);
      if (alone.engine.parts.release_early && alone.engine.parts.by_expert)
        EXPECT_EQ(source->waited_holding(), 0u) << "while an expert is waited for, none is held";
    }
  }
}

TEST(Overtaking, AlsoWhereKernelsDependOnTheNumberOfRowsAndWhereExpertsAreFull) {
  for (const std::optional<double> capacity : {std::optional<double>(), std::optional<double>(0.7)}) {
    BenchOptions options{.deterministic = false};
    options.engine.capacity_factor = capacity;
    Bench bench(any_fixture(), parking({.deterministic = false, .engine = options.engine}));
    expect_equal(bench, any_fixture(), options, 7);
  }
}

TEST(Overtaking, AStepThatHasParkedHoldsNothing) {
  LateSource* source = nullptr;
  Bench bench(any_fixture(), parking(), [&](std::unique_ptr<store::BlobSource> inner) {
    auto made = std::make_unique<LateSource>(std::move(inner), LateSource::Options{.seed = 3});
    source = made.get();
    return made;
  });
  Overtaker overtaker(bench, 4);
  overtaker.before = overtaker.after = [&] {
    EXPECT_EQ(source->experts_held(), 0u);
    EXPECT_EQ(source->outstanding(), 0u);
  };
  (void)play(bench, 3, false, kSteps);
  EXPECT_GT(overtaker.taken, 0);
}

TEST(Overtaking, TheStoreIsLostInEitherStep) {
  int parked_failed = 0, overtaking_failed = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    LateSource* source = nullptr;
    Bench bench(any_fixture(), parking(), [&](std::unique_ptr<store::BlobSource> inner) {
      auto made = std::make_unique<LateSource>(std::move(inner), LateSource::Options{.seed = seed});
      source = made.get();
      return made;
    });
    {
      Overtaker overtaker(bench, seed);
      overtaker.may_fail = true;
      source->lose_after(static_cast<int>(seed) * 3);
      std::mt19937 random(seed);
      add_some(bench, random, 100, 5, 12);
      parked_failed += !bench.run().is_ok();
      overtaking_failed += overtaker.failed;
      EXPECT_EQ(source->experts_held(), 0u);
      EXPECT_EQ(source->outstanding(), 0u);
    }
    source->lose_after(INT32_MAX);
    Bench alone(any_fixture());
    EXPECT_TRUE(play(bench, seed, false, 2) == play(alone, seed, false, 2)) << "the next steps go on";
  }
  EXPECT_GT(parked_failed, 3);
  EXPECT_GT(overtaking_failed, 3);
}

TEST(Overtaking, APlanThatMayNotOvertakeIsRefusedAndTheOtherGoesOn) {
  Bench bench(any_fixture(), parking());
  struct Refused final : lanes::Breaks {
    explicit Refused(Bench& b) : bench(b) {}
    bool wanted() override { return true; }
    void take() override {
      const auto refused = [&](uint64_t id, size_t tokens, const std::function<void(StepPlan&)>& change) {
        bench.add(id, std::vector<TokenId>(tokens, 3)).sample = true;
        change(bench.plan());
        StepOutcome outcome;
        errors.push_back(bench.overtake(outcome).message());
      };
      refused(600 + errors.size(), 17, [](StepPlan&) {});
      refused(600 + errors.size(), 1, [](StepPlan& p) { p.parent = PlanId(1); });
      refused(600 + errors.size(), 1, [](StepPlan& p) { p.released.push_back({SequenceId(1), 0}); });
      refused(600 + errors.size(), 1, [](StepPlan& p) { p.kv_copies.push_back({0, 1}); });
      refused(1, 1, [](StepPlan&) {});
    }
    Bench& bench;
    std::vector<std::string> errors;
  } breaks(bench);
  bench.engine().set_breaks(&breaks);
  bench.add(1, {1, 2, 3}).sample = true;
  const auto outcome = bench.run();
  bench.engine().set_breaks(nullptr);
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_TRUE(outcome->sequences[0].status.is_ok());
  ASSERT_GE(breaks.errors.size(), 5u);
  EXPECT_NE(breaks.errors[0].find("has 17 tokens, and one that overtakes another has at most 16"), std::string::npos);
  for (const size_t i : {1, 2, 3})
    EXPECT_NE(breaks.errors[i].find("releases nothing and copies nothing"), std::string::npos) << breaks.errors[i];
  EXPECT_NE(breaks.errors[4].find("which has sequence 1 too"), std::string::npos) << breaks.errors[4];
}

TEST(Overtaking, EachStepHasItsOwnFigures) {
  LateSource* source = nullptr;
  Bench bench(any_fixture(), parking(), [&](std::unique_ptr<store::BlobSource> inner) {
    auto made = std::make_unique<LateSource>(std::move(inner), LateSource::Options{});
    source = made.get();
    return made;
  });
  std::mt19937 random(5);
  add_large(bench, random);
  const auto alone = bench.run();
  ASSERT_TRUE(alone.is_ok());
  ManualClock clock;
  BenchOptions timed = parking();
  timed.clock = &clock;
  Bench other(any_fixture(), std::move(timed), [&](std::unique_ptr<store::BlobSource> inner) {
    return std::make_unique<LateSource>(std::move(inner), LateSource::Options{});
  });
  Overtaker overtaker(other, 6);
  overtaker.after = [&clock] { clock.advance(Nanos(2'000'000)); };
  std::mt19937 again(5);
  add_large(other, again);
  const auto parked = other.run();
  ASSERT_TRUE(parked.is_ok());
  EXPECT_EQ(parked->expert_misses, alone->expert_misses) << "those of the other step are its own";
  EXPECT_EQ(parked->parks, other.engine().spec().layers.size());
  EXPECT_EQ(parked->parked_us, 2000 * parked->parks);
  EXPECT_EQ(parked->step_us, 0u) << "without the time in which it was parked";
  EXPECT_EQ(alone->parks, 0u);
  EXPECT_EQ(alone->parked_us, 0u);
}

TEST(Overtaking, IsOffWhereItIsNotAskedForAndWhereSequencesHaveStates) {
  for (const Fixture& model : fixtures()) {
    Bench off(model), on(model, parking());
    EXPECT_EQ(off.engine().limits().overtaking_tokens_max, 0);
    EXPECT_EQ(on.engine().limits().overtaking_tokens_max, model.has_states() ? 0 : 16) << model.name;
  }
}

}  // namespace
}  // namespace moestro::engine::testing
