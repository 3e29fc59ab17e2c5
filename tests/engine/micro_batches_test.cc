// A step that is cut into micro-batches says bitwise what the uncut step says, whatever the cuts; and what fails amid
// it leaves nothing behind.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"
#include "tests/lanes/recorded_timeline.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::engine::testing {
namespace {

constexpr int kSteps = 5;

/// A model of random shape.
Fixture random_model(uint32_t seed) {
  static const moestro::testing::TemporaryDirectory root;
  const std::string name = "random-" + std::to_string(seed);
  if (std::filesystem::exists(root / name)) return {name, root / name};
  std::mt19937 random(seed);
  moestro::testing::CheckpointOptions o;
  o.architecture = random() % 2 == 0 ? "MixtralForCausalLM" : "Qwen2MoeForCausalLM";
  o.dtype = DType::kF32;
  o.layers = 1 + random() % 4;
  o.experts = 3 + random() % 7;
  o.config = R"({"num_experts_per_tok": )" + std::to_string(1 + random() % 3) + "}";
  std::filesystem::create_directories(root / name);
  moestro::testing::write_checkpoint(root / name, o);
  return {name, root / name};
}

std::vector<Fixture> models() {
  std::vector<Fixture> all = fixtures();
  for (uint32_t seed = 1; seed <= 6; ++seed) all.push_back(random_model(seed));
  return all;
}

BenchOptions with(MicroBatches micro_batches) {
  BenchOptions options;
  options.engine.micro_batches = micro_batches;
  return options;
}

BenchOptions pipeline(int64_t micro_batches, int64_t rows, PipelineParts parts = {}) {
  BenchOptions options;
  options.engine.schedule = ScheduleKind::kExpertPipeline;
  options.engine.cut = {.count = micro_batches, .rows = rows};
  options.engine.parts = parts;
  return options;
}

/// What a few steps say.
struct Said {
  std::vector<uint32_t> scores;  ///< bits of log-probabilities
  std::vector<TokenId> sampled;
  std::vector<std::string> errors;  ///< of each sequence of each step
  uint64_t dropped = 0;
  friend bool operator==(const Said&, const Said&) = default;
};

/// Adds prompts' chunks and single tokens of some sequences, as `seed` says, to a plan. Sequences are `base` and those
/// after it.
void add_some(Bench& bench, std::mt19937& random, uint64_t base) {
  const auto vocab = static_cast<uint32_t>(bench.engine().spec().vocab);
  for (uint64_t id = 0; id < 6; ++id) {
    if (random() % 4 == 0) continue;
    std::vector<TokenId> tokens(random() % 2 == 0 ? 1 : 1 + random() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
    PlanSequence& s = bench.add(base + id, tokens);
    s.sample = true;
    for (size_t i = 0; i < tokens.size(); ++i) s.score_targets.push_back(static_cast<TokenId>(random() % vocab));
  }
}

/// Into one to four micro-batches, some of them empty.
void cut(StepPlan& plan, std::mt19937& random) {
  plan.micro_batches.assign(1, 0);
  for (size_t cuts = random() % 4; cuts > 0; --cuts)
    plan.micro_batches.push_back(static_cast<uint32_t>(random() % (plan.sequences.size() + 1)));
  std::ranges::sort(plan.micro_batches);
}

void note(const StepOutcome& outcome, Said& said) {
  said.dropped += outcome.dropped_rows;
  for (const SequenceOutcome& s : outcome.sequences) {
    said.errors.push_back(s.status.message());
    for (const TokenScore& score : s.scores) said.scores.push_back(std::bit_cast<uint32_t>(score.logprob));
    for (const SampledToken& token : s.sampled) said.sampled.push_back(token.id);
  }
}

Said play(Bench& bench, uint32_t seed, uint32_t cuts, uint64_t base = 1) {
  std::mt19937 random(seed), cutting(cuts);
  Said said;
  for (int step = 0; step < kSteps; ++step) {
    add_some(bench, random, base);
    cut(bench.plan(), cutting);
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    if (outcome.is_ok()) note(*outcome, said);
  }
  return said;
}

/// An engine whose experts all arrive late.
struct LateBench {
  LateBench(const Fixture& fixture, BenchOptions options, const LateSource::Options& late)
      : bench(fixture, std::move(options), [&](std::unique_ptr<store::BlobSource> inner) {
          auto made = std::make_unique<LateSource>(std::move(inner), late);
          source = made.get();
          return made;
        }) {}
  void expect_nothing_left() const {
    EXPECT_EQ(source->experts_held(), 0u);
    EXPECT_EQ(source->outstanding(), 0u);
    EXPECT_EQ(source->waited_holding(), 0u) << "while an expert is waited for, none is held";
  }
  LateSource* source = nullptr;
  Bench bench;
};

TEST(MicroBatches, InTurnSayBitwiseWhatTheUncutStepSays) {
  for (const Fixture& model : models()) {
    SCOPED_TRACE(model.name);
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Bench together(model, with(MicroBatches::kTogether));
      const Said uncut = play(together, seed, 1);
      EXPECT_GT(uncut.scores.size(), 20u);
      Bench resident(model, with(MicroBatches::kInTurn));
      EXPECT_TRUE(play(resident, seed, 10 + seed) == uncut) << seed;
      LateBench late(model, with(MicroBatches::kInTurn), {.seed = seed});
      EXPECT_TRUE(play(late.bench, seed, 20 + seed) == uncut) << seed << ", experts arrive late";
      late.expect_nothing_left();
    }
  }
}

TEST(MicroBatches, TheExpertPipelineSaysBitwiseWhatTheLayerwiseScheduleSays) {
  for (const Fixture& model : models()) {
    SCOPED_TRACE(model.name);
    Bench layerwise(model);
    const Said expected = play(layerwise, 4, 1);
    uint32_t cuts = 30;
    for (const int64_t count : {0, 1, 2, 5, 64})
      for (const int64_t rows : {0, 1, 7}) {
        SCOPED_TRACE(std::to_string(count) + " micro-batches, " + std::to_string(rows) + " rows");
        LateBench late(model, pipeline(count, rows), {.seed = ++cuts});
        EXPECT_TRUE(play(late.bench, 4, cuts) == expected);
        late.expect_nothing_left();
      }
    for (const PipelineParts parts : {PipelineParts{.hot_first = false}, PipelineParts{.by_expert = false},
                                      PipelineParts{.release_early = false}}) {
      Bench ablated(model, pipeline(3, 0, parts));
      EXPECT_TRUE(play(ablated, 4, 2) == expected) << parts.hot_first << parts.by_expert << parts.release_early;
    }
  }
}

TEST(MicroBatches, WithWindowsAndSinks) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    BenchOptions options[] = {with(MicroBatches::kTogether), with(MicroBatches::kInTurn)};
    for (BenchOptions& o : options) o.engine.visible = {.sinks = 2, .window = 6};
    BenchOptions piped = pipeline(3, 0);
    piped.engine.visible = options[0].engine.visible;
    Bench together(random_model(seed), std::move(options[0])), in_turn(random_model(seed), std::move(options[1])),
        pipelined(random_model(seed), std::move(piped));
    const Said uncut = play(together, seed, 1);
    EXPECT_TRUE(uncut == play(in_turn, seed, 2 + seed)) << seed;
    EXPECT_TRUE(uncut == play(pipelined, seed, 5 + seed)) << seed << ", expert pipeline";
  }
}

TEST(MicroBatches, DropTheSameRowsWhereExpertsAreFull) {
  uint64_t dropped = 0;
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    BenchOptions options[] = {with(MicroBatches::kTogether), with(MicroBatches::kInTurn)};
    for (BenchOptions& o : options) o.deterministic = false, o.engine.capacity_factor = 0.7;
    Bench together(random_model(seed), std::move(options[0])), in_turn(random_model(seed), std::move(options[1]));
    const Said uncut = play(together, seed, 1);
    EXPECT_EQ(play(in_turn, seed, 2 + seed).dropped, uncut.dropped) << seed;
    dropped += uncut.dropped;
  }
  EXPECT_GT(dropped, 100u);
}

/// Attention runs for each micro-batch, and each expert of a layer once for all of them.
TEST(MicroBatches, RunInTurnAndShareExperts) {
  for (const MicroBatches how : {MicroBatches::kTogether, MicroBatches::kInTurn}) {
    Bench bench(random_model(3), with(how));
    lanes::RecordedTimeline timeline;
    bench.engine().set_timeline(&timeline);
    for (uint64_t id = 1; id <= 5; ++id) bench.add(id, {1, 2, static_cast<TokenId>(id)}).sample = true;
    bench.plan().micro_batches = {0, 2, 2, 3};
    ASSERT_TRUE(bench.run().is_ok());
    bench.engine().set_timeline(nullptr);
    size_t attentions = 0;
    std::set<std::pair<int32_t, int32_t>> experts;
    int64_t rows = 0;
    for (const lanes::Slice& slice : timeline.slices()) {
      attentions += slice.task.kind == lanes::TaskKind::kAttention;
      if (slice.task.kind != lanes::TaskKind::kExpert) continue;
      EXPECT_TRUE(experts.insert({slice.task.layer, slice.task.expert}).second) << "an expert runs twice";
      rows += slice.task.rows;
    }
    const model::ModelSpec& spec = bench.engine().spec();
    EXPECT_EQ(attentions, spec.layers.size() * (how == MicroBatches::kInTurn ? 3 : 1));
    EXPECT_EQ(rows, 15 * spec.moe().top_k * spec.moe_layers());
  }
}

TEST(MicroBatches, AnExpertThatCannotBeReadFailsTheSequencesOfEachThatNeedIt) {
  int failed = 0, served = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const Fixture model = random_model(1 + seed % 6);
    Bench probe(model);
    const auto layer = MoeLayerId(seed % static_cast<uint32_t>(probe.engine().spec().moe_layers()));
    const uint32_t blob = *probe.source().manifest().expert_blob(layer, ExpertId(seed % 3), DType::kF32);
    const auto played = [&](BenchOptions options) {
      LateBench late(model, std::move(options), {.seed = seed, .broken_blob = blob});
      std::mt19937 random(seed), cutting(seed);
      Said said;
      for (uint64_t step = 0; step < kSteps; ++step) {
        add_some(late.bench, random, 1 + 10 * step);  // new ones: what has failed does not go on
        cut(late.bench.plan(), cutting);
        const auto outcome = late.bench.run();
        EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
        if (outcome.is_ok()) note(*outcome, said);
        late.expect_nothing_left();
      }
      return said;
    };
    const Said uncut = played(with(MicroBatches::kTogether));
    EXPECT_TRUE(played(with(MicroBatches::kInTurn)) == uncut) << seed;
    EXPECT_TRUE(played(pipeline(3, 0)) == uncut) << seed << ", expert pipeline";
    for (const std::string& error : uncut.errors) ++(error.empty() ? served : failed);
  }
  EXPECT_GT(failed, 10);
  EXPECT_GT(served, 10);
}

TEST(MicroBatches, AStoreThatIsLostAmidAStepLeavesNothingAndTheNextStepsGoOn) {
  int lost = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Fixture model = random_model(1 + seed % 6);
    LateBench late(model, seed % 2 == 0 ? with(MicroBatches::kInTurn) : pipeline(2, 0), {.seed = seed});
    std::mt19937 random(seed), cutting(seed);
    for (uint64_t step = 0; step < 3; ++step) {
      late.source->lose_after(static_cast<int>(random() % 60));
      add_some(late.bench, random, 100 + 10 * step);
      cut(late.bench.plan(), cutting);
      const auto outcome = late.bench.run();
      EXPECT_EQ(outcome.is_ok(), !late.source->was_lost());
      lost += late.source->was_lost();
      late.expect_nothing_left();
      // A plan that builds on one that failed is cancelled whole, with all its micro-batches.
      if (outcome.is_ok()) continue;
      late.bench.add(200 + step, {kSampledByParent}).sample = true;
      EXPECT_EQ(late.bench.run().status().code(), Code::kUnavailable);
      late.expect_nothing_left();
    }
    late.source->lose_after(INT32_MAX);
    Bench together(model, with(MicroBatches::kTogether));
    EXPECT_TRUE(play(late.bench, seed, seed, 1000) == play(together, seed, 1, 1000));
    late.expect_nothing_left();
  }
  EXPECT_GT(lost, 30);
}

}  // namespace
}  // namespace moestro::engine::testing
