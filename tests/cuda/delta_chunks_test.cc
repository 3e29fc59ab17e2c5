// The gated delta rule in chunks, as long prompts are computed where bits may depend on the way: against the recurrence
// in double, and what may change no bit.

#include <algorithm>

#include "tests/cuda/asked_chunks.h"
#include "tests/cuda/delta_inputs.h"
#include "tests/cuda/rounded_delta.h"
#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/emulator.h"
#endif

namespace moestro::kernels::test {
namespace {

constexpr DeltaShape kShapes[] = {
    {.key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 128, .conv = 4},
    {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 36, .conv = 4, .in_turn = true},
    {.key_heads = 2, .value_heads = 2, .key_dim = 33, .value_dim = 65, .conv = 1},
    {.key_heads = 1, .value_heads = 3, .key_dim = 7, .value_dim = 1, .conv = 5},
    {.key_heads = 1, .value_heads = 1, .key_dim = 97, .value_dim = 130, .conv = 3}};
std::string name_of(const DeltaShape& s) {
  return std::to_string(s.value_heads) + " heads of " + std::to_string(s.key_dim) + " and " +
         std::to_string(s.value_dim);
}

struct Result {
  std::vector<float> states, out;
};
constexpr int64_t kSlots = 8;

/// Root mean squares, of what differs compared with what is wanted.
void expect_near(const std::vector<float>& got, const std::vector<float>& want, double bound, const std::string& what) {
  double apart = 0.0, all = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    apart += std::pow(static_cast<double>(got[i]) - want[i], 2);
    all += std::pow(static_cast<double>(want[i]), 2);
  }
  EXPECT_TRUE(apart <= bound * bound * all)
      << what << ": " << std::sqrt(apart / all) << ", bound " << bound << ", seed " << seed();
}

class DeltaChunks : public CudaTest {
 protected:
  /// Some heads remember long.
  DeltaInputs inputs(const DeltaShape& shape, int64_t rows) {
    DeltaInputs in(shape, rows, random_);
    for (float& a : in.a_log) a = 2.0f * a - 3.0f;
    return in;
  }
  Result start(const DeltaShape& shape, int64_t rows) {
    return {random_.normal(kSlots * delta_state_floats(shape)),
            std::vector<float>(static_cast<size_t>(rows * shape.values()), 0.0f)};
  }
  static void step(Ops& ops, const DeltaShape& shape, std::span<const AttentionSequence> sequences, DeltaInputs in,
                   Result& result) {
    ops.gated_delta(shape, sequences, in.view(), result.states.data(), result.out.data());
  }
  static void expect_same_results(const Result& got, const Result& want, const std::string& what) {
    expect_same(got.states.data(), want.states.data(), static_cast<int64_t>(want.states.size()), what + ": states");
    expect_same(got.out.data(), want.out.data(), static_cast<int64_t>(want.out.size()), what + ": outputs");
  }
  /// In steps that end at these positions, with the state in slot 2.
  static Result in_steps(Ops& ops, const DeltaShape& shape, const DeltaInputs& in, Result result,
                         std::initializer_list<int64_t> ends) {
    int64_t at = 0;
    for (const int64_t end : ends) {
      const StateWrite last[] = {{end, 2}};
      const AttentionSequence s{
          .first_token = at, .tokens = end - at, .first_position = at, .state = 2, .states = last};
      step(ops, shape, {&s, 1}, in, result);
      at = end;
    }
    return result;
  }

  Random random_;
  AskedChunks asked_;
  std::unique_ptr<HostFacingOps> ops_ = cuda_ops(false), exact_ = cuda_ops(true);
  std::unique_ptr<Ops> reference_ = make_reference_ops();
};

/// Rows 0 to 420: a decode, a short prompt, a prompt from its beginning, one that goes on within a chunk and keeps
/// states inside, and one that writes the slot that it reads.
constexpr StateWrite kOne[] = {{31, 0}}, kFew[] = {{41, 1}}, kBegins[] = {{128, 2}},
                     kOn[] = {{96, 3}, {97, 4}, {201, 5}}, kInPlace[] = {{323, 6}};
std::vector<AttentionSequence> mixed() {
  return {{.first_token = 0, .tokens = 1, .first_position = 30, .state = 0, .states = kOne},
          {.first_token = 1, .tokens = 11, .first_position = 30, .state = 1, .states = kFew},
          {.first_token = 12, .tokens = 128, .states = kBegins},
          {.first_token = 140, .tokens = 150, .first_position = 51, .state = 7, .states = kOn},
          {.first_token = 290, .tokens = 131, .first_position = 192, .state = 6, .states = kInPlace}};
}
constexpr int64_t kRows = 421;

TEST_F(DeltaChunks, AgreeWithTheRecurrence) {
  const std::vector<AttentionSequence> sequences = mixed();
  for (const DeltaShape& shape : kShapes) {
    DeltaInputs in = inputs(shape, kRows);
    const Result begin = start(shape, kRows);
    Result got = begin, reference = begin;
    step(*ops_, shape, sequences, in, got);
    step(*reference_, shape, sequences, in, reference);
    expect_close(got.out, reference.out, 2e-2, name_of(shape) + ", outputs");
    expect_near(got.out, reference.out, 8e-3, name_of(shape) + ", outputs");
    expect_close(got.states, reference.states, 1e-2, name_of(shape) + ", states");

    // A number that is nearly between two of bf16 may be rounded to the other one. One bf16 in place of two parts
    // anywhere makes this 1e-3.
    Result rounded = reference;
    RoundedDelta rule(shape, in.view(), begin.states);
    for (size_t s = 2; s < sequences.size(); ++s) rule.run(sequences[s], rounded.states.data(), rounded.out.data());
    expect_near(got.states, rounded.states, 2e-4, name_of(shape) + ", states of rounded keys");
  }
}

TEST_F(DeltaChunks, CompanyAndCutsBetweenChunksChangeNoBit) {
  const std::vector<AttentionSequence> sequences = mixed();
  for (const DeltaShape& shape : kShapes) {
    const DeltaInputs in = inputs(shape, kRows);
    const Result begin = start(shape, kRows);
    Result together = begin, alone = begin;
    step(*ops_, shape, sequences, in, together);
    for (const AttentionSequence& s : sequences) step(*ops_, shape, {&s, 1}, in, alone);
    expect_same_results(together, alone, name_of(shape));
    expect_same_results(in_steps(*ops_, shape, in, begin, {192, 421}),
                        in_steps(*ops_, shape, in, begin, {421}), name_of(shape) + " in two steps");
  }
}

TEST_F(DeltaChunks, ShortPromptsAndDeterministicModeKeepTheRecurrence) {
  const DeltaShape shape = kShapes[1];
  const DeltaInputs in = inputs(shape, 150);
  const Result begin = start(shape, 150), exact = in_steps(*exact_, shape, in, begin, {150});
  expect_same_results(in_steps(*exact_, shape, in, begin, {130, 150}), exact, "deterministic");
  expect_same_results(in_steps(*ops_, shape, in, begin, {127, 150}), exact, "short");
  const Result chunked = in_steps(*ops_, shape, in, begin, {150});
  EXPECT_NE(std::memcmp(chunked.out.data(), exact.out.data(), exact.out.size() * sizeof(float)), 0);
}

/// Chunks would have a row or two each.
TEST_F(DeltaChunks, ManyKeptStatesKeepTheRecurrence) {
  const DeltaShape shape = kShapes[1];
  const DeltaInputs in = inputs(shape, 140);
  std::vector<StateWrite> writes;
  for (int64_t end = 2; end <= 140; end += 2) writes.push_back({end, static_cast<uint32_t>(end / 2 % kSlots)});
  const AttentionSequence s{.tokens = 140, .states = writes};
  Result got = start(shape, 140), want = got;
  step(*ops_, shape, {&s, 1}, in, got);
  step(*exact_, shape, {&s, 1}, in, want);
  expect_same_results(got, want, "a state after every second row");
}

TEST_F(DeltaChunks, AStepThatIsComputedTwiceGivesTheSameBits) {
  const std::vector<AttentionSequence> sequences = mixed();
  for (const DeltaShape& shape : {kShapes[0], kShapes[1]}) {
    DeltaInputs in = inputs(shape, kRows), wrong = inputs(shape, kRows);  // what came of an expert that was not there
    const Result begin = start(shape, kRows);
    Result want = begin, got = begin;
    step(*ops_, shape, sequences, in, want);
    const int64_t floats = 3 * delta_state_floats(shape);
    std::vector<float> kept(static_cast<size_t>(floats), NAN);
    ops_->gated_delta_keeping(shape, sequences, wrong.view(), got.states.data(), got.out.data(), {kept.data(), false},
                              floats);
    EXPECT_NE(std::memcmp(got.states.data(), want.states.data(), got.states.size() * sizeof(float)), 0);
    ops_->gated_delta_keeping(shape, sequences, in.view(), got.states.data(), got.out.data(), {kept.data(), true},
                              floats);
    expect_same_results(got, want, name_of(shape));
  }
}

/// Products of decays that are 0 in f32, and logarithms that are infinite.
TEST_F(DeltaChunks, WhatForgetsAllAtOnceStaysRight) {
  const DeltaShape shape{.key_heads = 1, .value_heads = 2, .key_dim = 40, .value_dim = 20, .conv = 4};
  DeltaInputs in = inputs(shape, 200);
  in.a_log = {1.0f, 100.0f};
  for (size_t i = 0; i < in.a.size(); ++i) in.a[i] = i / 2 % 10 < 7 ? 3.0f * in.a[i] : 200.0f;
  Result got = start(shape, 200), want = got;
  const StateWrite end[] = {{260, 1}};
  const AttentionSequence s{.tokens = 200, .first_position = 60, .state = 0, .states = end};
  step(*ops_, shape, {&s, 1}, in, got);
  step(*reference_, shape, {&s, 1}, in, want);
  expect_close(got.out, want.out, 2e-2, "outputs");
  expect_close(got.states, want.states, 1e-2, "states");
}

/// The same key in every row, and rates near 1: T's numbers are as large as they may become.
TEST_F(DeltaChunks, RowsThatAreAllAlikeStayRight) {
  const DeltaShape shape{.key_heads = 1, .value_heads = 1, .key_dim = 64, .value_dim = 32, .conv = 1};
  DeltaInputs in = inputs(shape, 192);
  for (int64_t i = 64; i < 192 * 64; ++i) in.k[static_cast<size_t>(i)] = in.k[static_cast<size_t>(i % 64)];
  std::fill(in.b.begin(), in.b.end(), 9.0f);
  in.a_log = {-12.0f};
  Result got = start(shape, 192), want = got;
  const StateWrite end[] = {{192, 1}};
  const AttentionSequence s{.tokens = 192, .states = end};
  step(*ops_, shape, {&s, 1}, in, got);
  step(*reference_, shape, {&s, 1}, in, want);
  expect_close(got.states, want.states, 1e-2, "states");
  const auto state = std::span(want.states).subspan(static_cast<size_t>(delta_state_floats(shape)));
  const double most = *std::ranges::max_element(state.first(static_cast<size_t>(delta_state_floats(shape))));
  expect_close(got.out, want.out, 2e-2, "outputs", most);  // q is nearly at right angles to the key
}

TEST_F(DeltaChunks, ANaNStaysWithItsSequence) {
  const DeltaShape shape = kShapes[1];
  DeltaInputs in = inputs(shape, 270);
  in.v[static_cast<size_t>(70 * shape.values())] = NAN;
  const StateWrite first[] = {{64, 0}, {135, 1}}, second[] = {{135, 2}};
  const std::vector<AttentionSequence> both{{.tokens = 135, .states = first},
                                            {.first_token = 135, .tokens = 135, .states = second}};
  Result got = start(shape, 270);
  step(*ops_, shape, both, in, got);
  const auto finite = [&](const std::vector<float>& all, int64_t begin, int64_t end) {
    return std::all_of(all.begin() + begin, all.begin() + end, [](float x) { return std::isfinite(x); });
  };
  const int64_t slot = delta_state_floats(shape), width = shape.values();
  EXPECT_TRUE(finite(got.out, 0, 64 * width));
  EXPECT_FALSE(finite(got.out, 70 * width, 71 * width));
  EXPECT_TRUE(finite(got.out, 135 * width, 270 * width));
  EXPECT_TRUE(finite(got.states, 0, slot));
  EXPECT_FALSE(finite(got.states, slot, 2 * slot));
  EXPECT_TRUE(finite(got.states, 2 * slot, 3 * slot));
}

#ifndef MOESTRO_CUDA_PLUGIN
TEST_F(DeltaChunks, TheOrderOfThreadsChangesNoBit) {
  const DeltaShape shape{.key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 96, .conv = 2};
  const DeltaInputs in = inputs(shape, 200);
  const Result begin = start(shape, 200), want = in_steps(*ops_, shape, in, begin, {200});
  for (const uint64_t order : {1, 2, 3}) {
    cuda::emulated::set_order(order);
    expect_same_results(in_steps(*ops_, shape, in, begin, {200}), want, "order " + std::to_string(order));
  }
  cuda::emulated::set_order(0);
}
#endif

}  // namespace
}  // namespace moestro::kernels::test
