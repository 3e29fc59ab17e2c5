// The gated delta rule on a device: a step that is computed twice, since an expert was missing after all, and shapes
// that are not of a whole number of lanes.

#include "tests/cuda/delta_inputs.h"

namespace moestro::kernels::test {
namespace {

class DeltaKept : public CudaTest {
 protected:
  Random random_;
};

/// Sequences that write the slot that they read: a decode, a prompt that goes on, and one shorter than the convolution;
/// and one that reads a slot that nobody writes.
TEST_F(DeltaKept, AStepThatIsComputedTwiceGivesTheSameBits) {
  constexpr DeltaShape kShapes[] = {{2, 4, 16, 40, 4}, {1, 1, 7, 5, 3}, {1, 2, 40, 36, 5}};
  for (const DeltaShape& shape : kShapes) {
    const int64_t floats = delta_state_floats(shape), rows = 1 + 11 + 2 + 1;
    std::vector<float> states = random_.normal(6 * floats);
    const StateWrite one[] = {{31, 0}}, two[] = {{35, 4}, {41, 1}}, three[] = {{12, 2}}, four[] = {{33, 5}};
    const std::vector<AttentionSequence> step{
        {.first_token = 0, .tokens = 1, .first_position = 30, .state = 0, .states = one},
        {.first_token = 1, .tokens = 11, .first_position = 30, .state = 1, .states = two},
        {.first_token = 12, .tokens = 2, .first_position = 10, .state = 2, .states = three},
        {.first_token = 14, .tokens = 1, .first_position = 32, .state = 3, .states = four}};
    DeltaInputs in(shape, rows, random_);
    const auto ops = cuda_ops();
    std::vector<float> want = states, out(static_cast<size_t>(rows * shape.values()), NAN), got_out = out;
    ops->gated_delta(shape, step, in.view(), want.data(), out.data());

    std::vector<float> got = states, kept(static_cast<size_t>(4 * floats), NAN);
    DeltaInputs wrong(shape, rows, random_);  // what came of an expert that was not there
    ops->gated_delta_keeping(shape, step, wrong.view(), got.data(), got_out.data(), {kept.data(), false}, 4 * floats);
    EXPECT_TRUE(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) != 0);
    ops->gated_delta_keeping(shape, step, in.view(), got.data(), got_out.data(), {kept.data(), true}, 4 * floats);
    const std::string what = std::to_string(shape.key_dim) + " times " + std::to_string(shape.value_dim);
    expect_same(got.data(), want.data(), static_cast<int64_t>(want.size()), what);
    expect_same(got_out.data(), out.data(), static_cast<int64_t>(out.size()), what);
  }
}

TEST_F(DeltaKept, EveryHeadSizeAgreesWithTheReference) {
  const auto ops = cuda_ops();
  const auto reference = make_reference_ops();
  for (const int64_t key_dim : {16, 31, 32, 33, 64, 65, 96, 127, 128}) {
    const DeltaShape shape{.key_heads = 1, .value_heads = 2, .key_dim = key_dim, .value_dim = 144 - key_dim, .conv = 4};
    DeltaInputs in(shape, 20, random_);
    const StateWrite prompt[] = {{8, 0}, {9, 1}, {19, 2}}, one[] = {{1, 3}};
    const std::vector<AttentionSequence> step{{.first_token = 0, .tokens = 19, .states = prompt},
                                              {.first_token = 19, .tokens = 1, .states = one}};
    std::vector<float> got(static_cast<size_t>(4 * delta_state_floats(shape)), NAN), want = got;
    std::vector<float> out(static_cast<size_t>(20 * shape.values()), NAN), expected = out;
    DeltaInputs copy = in;
    ops->gated_delta(shape, step, in.view(), got.data(), out.data());
    reference->gated_delta(shape, step, copy.view(), want.data(), expected.data());
    expect_close(out, expected, 2e-5, std::to_string(key_dim));
    expect_close(got, want, 2e-5, std::to_string(key_dim));
  }
}

TEST_F(DeltaKept, GatedNormsAgreeWithTheReference) {
  const auto ops = cuda_ops();
  const auto reference = make_reference_ops();
  for (const auto& [n, dim] : {std::pair<int64_t, int64_t>(1, 1), {9, 12}, {5, 33}, {4, 128}, {2, 700}}) {
    auto x = random_.normal(n * dim), gate = random_.normal(n * dim, 3.0f), want = gate;
    const auto weight = random_.normal(dim);
    auto copy = x;
    ops->gated_norm(x.data(), n, dim, weight.data(), 1e-6f, gate.data());
    reference->gated_norm(copy.data(), n, dim, weight.data(), 1e-6f, want.data());
    expect_close(gate, want, 1e-5, std::to_string(n) + " rows of " + std::to_string(dim));
  }
}

}  // namespace
}  // namespace moestro::kernels::test
