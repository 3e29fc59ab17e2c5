// States of sequences in the engine: what a plan may do with slots, what is refused by name, and that a conversation
// goes on from a kept state bitwise as if it had been computed whole.

#include <gtest/gtest.h>

#include <cstring>

#include "common/model/mixer.h"
#include "services/worker/engine/sequence_mixer.h"
#include "store/resident_source.h"
#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::engine::testing {
namespace {

std::vector<Fixture> with_states() {
  std::vector<Fixture> all = fixtures();
  std::erase_if(all, [](const Fixture& fixture) { return !fixture.has_states(); });
  return all;
}

class StatesTest : public ::testing::TestWithParam<Fixture> {
 protected:
  StatesTest() : bench_(GetParam()) {
    for (int i = 0; i < 90; ++i)
      ids_.push_back(static_cast<TokenId>((i * 37 + 11 * (i / 7)) % bench_.engine().spec().vocab));
  }
  std::vector<TokenId> part(size_t first, size_t end) const {
    return {ids_.begin() + static_cast<std::ptrdiff_t>(first), ids_.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  /// What the one sequence of the plan fails with.
  std::string refusal() {
    const auto outcome = bench_.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    return outcome.is_ok() ? outcome->sequences.at(0).status.message() : "";
  }
  void expect_refused(const std::string& words) {
    const std::string said = refusal();
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }

  Bench bench_;
  std::vector<TokenId> ids_;
};
INSTANTIATE_TEST_SUITE_P(Fixtures, StatesTest, ::testing::ValuesIn(with_states()),
                         [](const auto& param) { return param.param.name; });

TEST_P(StatesTest, TurnsOfAConversationGoOnFromKeptStates) {
  for (const DType kv : {DType::kF32, DType::kInt8}) {
    BenchOptions options;
    options.engine.kv_dtype = kv;
    options.engine.state_slots = 64;
    Bench whole(GetParam(), options), turns(GetParam(), options);
    const auto want = whole.score({ids_}, ids_.size()).front();
    turns.add(1, part(0, 50));
    ASSERT_TRUE(turns.run().is_ok());
    // The second turn begins behind three blocks, the third behind four of the second's, beside the first going on.
    turns.add_behind(1, 3, 2, part(48, 70));
    ASSERT_TRUE(turns.run().is_ok());
    turns.add(1, {7}).sample = true;
    PlanSequence& third = turns.add_behind(2, 4, 3, part(64, 90));
    third.score_targets = part(65, 90);
    third.score_targets.push_back(-1);
    const auto outcome = turns.run();
    ASSERT_TRUE(outcome.is_ok() && outcome->sequences[1].status.is_ok());
    for (size_t i = 0; i < 25; ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(outcome->sequences[1].scores[i].logprob),
                std::bit_cast<uint32_t>(want[64 + i]))
          << "token " << 65 + i << ", KV in " << dtype_name(kv);
  }
}

TEST_P(StatesTest, OnlyTheStateAtItsPositionIsGoneOnFrom) {
  bench_.add(1, part(0, 20));
  ASSERT_EQ(refusal(), "");
  bench_.add(1, part(20, 22)).state += 1;  // nobody's, or kept at 16
  expect_refused("does not hold the state at position 20; prefill the sequence again");
  bench_.add(2, part(0, 9));
  ASSERT_EQ(refusal(), "");
  bench_.add(2, part(9, 10)).states.clear();
  expect_refused("its state after its last token has no slot");
  bench_.add(3, part(0, 9)).states.back().tokens = 8;
  expect_refused("its state after its last token has no slot");
  bench_.add(4, part(0, 9)).states.back().slot = 1u << 20;
  expect_refused("state slot 1048576 of");
  bench_.add(5, part(0, 9)).states.insert(bench_.plan().sequences[0].states.begin(), {0, 1});
  expect_refused("states that are not of its tokens");
  PlanSequence& twice = bench_.add(6, part(0, 9));
  twice.states.insert(twice.states.begin(), {4, twice.state});
  expect_refused("is written twice");
}

TEST_P(StatesTest, AFailedStepLosesItsStates) {
  bool damaged = false;
  BenchOptions options;
  options.engine.state_slots = 64;
  Bench bench(GetParam(), options, [&damaged](std::unique_ptr<store::BlobSource> inner) {
    const auto edit = [&damaged](uint32_t, std::vector<std::byte>& bytes) {
      if (damaged) std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    };
    return std::make_unique<LateSource>(std::move(inner), LateSource::Options{.edit = edit});
  });
  const auto said = [&bench] {
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    return outcome.is_ok() ? outcome->sequences.at(0).status.message() : "";
  };
  bench.add(1, part(0, 20));
  ASSERT_EQ(said(), "");
  const std::vector<StateWrite> written = bench.add(1, part(20, 40)).states;
  ASSERT_EQ(written.size(), 2u) << "kept after its second block, and its own";
  damaged = true;
  EXPECT_NE(said().find("not finite"), std::string::npos);
  damaged = false;
  // Others compute the same positions behind what was kept before that step, and would go on from what it wrote.
  const std::pair<size_t, uint32_t> lost[] = {{20, written[1].slot}, {32, written[0].slot}, {40, written[1].slot}};
  for (const auto& [at, slot] : lost) {
    bench.add_behind(1, 1, 100 + at, part(16, at));
    ASSERT_EQ(said(), "");
    bench.add(100 + at, {ids_[at]}).state = slot;
    const std::string refused = said();
    EXPECT_NE(refused.find("does not hold the state at position " + std::to_string(at)), std::string::npos) << refused;
  }
}

TEST_P(StatesTest, ARefusedPlanLosesNoStatesAndForgettingLosesAll) {
  bench_.add(1, part(0, 20));
  ASSERT_EQ(refusal(), "");
  const uint32_t slot = bench_.add(1, {ids_[20]}).state;
  bench_.plan().tokens.back().id = static_cast<TokenId>(bench_.engine().spec().vocab);
  expect_refused("outside the vocabulary");
  // Nothing was computed: it is still where it was.
  PlanSequence& again = bench_.plan().sequences.emplace_back();
  again.id = SequenceId(1);
  again.state = slot, again.states = {{21, slot}};
  bench_.plan().tokens.push_back({0, 20, ids_[20]});
  EXPECT_EQ(refusal(), "");
  bench_.engine().forget_all();
  PlanSequence& lost = bench_.plan().sequences.emplace_back();
  lost.id = SequenceId(1);
  lost.blocks = bench_.table(1);
  lost.state = slot, lost.states = {{22, slot}};
  bench_.plan().tokens.push_back({0, 21, ids_[21]});
  EXPECT_NE(refusal().find("prefill the sequence again"), std::string::npos);
}

TEST_P(StatesTest, TwoSequencesOfAPlanDoNotShareASlotThatIsWritten) {
  const uint32_t slot = bench_.add(1, part(0, 9)).state;
  bench_.add(2, part(0, 9)).states.back().slot = slot;
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_TRUE(outcome->sequences[0].status.is_ok());
  EXPECT_NE(outcome->sequences[1].status.message().find("two sequences of a plan use a state slot"),
            std::string::npos);
}

TEST_P(StatesTest, TakeWhatTheBudgetSaysAndStayF32) {
  for (const DType kv : {DType::kF32, DType::kInt8}) {
    BenchOptions options;
    options.engine.kv_dtype = kv;
    options.engine.state_slots = 5;
    Bench bench(GetParam(), options);
    int64_t expected = 0;
    for (const model::LayerSpec& layer : bench.engine().spec().layers) {
      if (!layer.delta) continue;
      EXPECT_EQ(model::state_bytes(layer), 4 * kernels::delta_state_floats(delta_shape(*layer.delta)));
      expected += 5 * model::state_bytes(layer);
    }
    EXPECT_EQ(bench.engine().limits().state_slots, 5);
    EXPECT_EQ(bench.engine().state_bytes(), expected);
    EXPECT_EQ(bench.engine().limits().state_interval % 16, 0);
  }
  EXPECT_GT(bench_.engine().limits().state_slots, 16);
  EXPECT_LE(bench_.engine().state_bytes(), bench_.engine().kv_bytes());
  EXPECT_EQ(model::state_budget(bench_.engine().spec(), 16, DType::kF32, 0).slots, 16) << "however small the cache";
}

TEST(StatesOptions, SlotsAreRefusedWhereAModelHasNoStates) {
  const auto source = store::ResidentSource::open(packed(any_fixture(), DType::kF32, DType::kF32));
  ASSERT_TRUE(source.is_ok());
  const auto ops = kernels::make_reference_ops();
  const SteadyClock clock;
  const auto made = Engine::create({.model = "m", .kv_tokens = 512, .state_slots = 7}, **source, *ops, clock);
  ASSERT_FALSE(made.is_ok());
  EXPECT_NE(made.status().message().find("--state-slots 7: the model has no states"), std::string::npos)
      << made.status().message();
}

TEST_P(StatesTest, WindowsAreRefusedByName) {
  const auto source = store::ResidentSource::open(packed(GetParam(), DType::kF32, DType::kF32));
  ASSERT_TRUE(source.is_ok());
  const auto ops = kernels::make_reference_ops();
  const SteadyClock clock;
  const auto said = [&](const EngineOptions& options) {
    return Engine::create(options, **source, *ops, clock).status().message();
  };
  EngineOptions options{.model = "m", .kv_tokens = 512};
  EXPECT_EQ(said(options), "");
  options.visible = {.sinks = 2, .window = 8};
  EXPECT_NE(said(options).find("--kv-window with layers of the gated delta rule"), std::string::npos) << said(options);
  options.visible = {};
  options.state_slots = -1;
  EXPECT_NE(said(options).find("--state-slots"), std::string::npos);
}

}  // namespace
}  // namespace moestro::engine::testing
