// The gated delta rule against the reference, and that a sequence's result does not depend on how it is cut, on who
// else is there, or on which states are kept.

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

constexpr DeltaShape kShapes[] = {
    {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .conv = 4},
    {.key_heads = 3, .value_heads = 3, .key_dim = 17, .value_dim = 33, .conv = 3},
    {.key_heads = 1, .value_heads = 5, .key_dim = 1, .value_dim = 1, .conv = 2},
    {.key_heads = 5, .value_heads = 10, .key_dim = 113, .value_dim = 70, .conv = 1},
    {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .conv = 4},
    {.key_heads = 3, .value_heads = 6, .key_dim = 16, .value_dim = 36, .conv = 4, .in_turn = true}};
std::string name_of(const DeltaShape& s) {
  return std::to_string(s.key_heads) + "/" + std::to_string(s.value_heads) + " heads of " + std::to_string(s.key_dim) +
         " and " + std::to_string(s.value_dim) + ", convolution of " + std::to_string(s.conv) +
         (s.in_turn ? ", in turn" : "");
}

/// What goes into a layer, position by position, and its weights.
struct Stream {
  std::vector<float> q, k, v, a, b;
};
struct Weights {
  std::vector<float> conv, a_log, dt_bias;
};

class DeltaTest : public ::testing::TestWithParam<Isa> {
 protected:
  static constexpr int64_t kSlots = 9;

  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    ops_ = cpu_ops(GetParam());
  }
  void choose(const DeltaShape& shape) {
    shape_ = shape;
    weights_ = {random_.normal(shape.channels() * shape.conv, 0.6f), random_.normal(shape.value_heads),
                random_.normal(shape.value_heads)};
    for (float& a : weights_.a_log) a -= 2.0f;  // some remember long
  }
  Stream stream(int64_t length) {
    return {random_.normal(length * shape_.keys()), random_.normal(length * shape_.keys()),
            random_.normal(length * shape_.values()), random_.normal(length * shape_.value_heads, 2.0f),
            random_.normal(length * shape_.value_heads)};
  }
  std::vector<float> slots() const {
    return std::vector<float>(static_cast<size_t>(kSlots * delta_state_floats(shape_)), NAN);
  }
  std::span<const float> slot(const std::vector<float>& states, uint32_t index) const {
    const auto floats = static_cast<size_t>(delta_state_floats(shape_));
    return std::span(states).subspan(index * floats, floats);
  }
  int64_t row_width() const { return shape_.values(); }
  void step(Ops& ops, std::span<const AttentionSequence> sequences, const Stream& in, int64_t row,
            std::vector<float>& states, float* out) const {
    Stream copy = in;  // q, k and v are overwritten
    const DeltaInput input{copy.q.data() + row * shape_.keys(), copy.k.data() + row * shape_.keys(),
                           copy.v.data() + row * shape_.values(), copy.a.data() + row * shape_.value_heads,
                           copy.b.data() + row * shape_.value_heads, weights_.conv.data(), weights_.a_log.data(),
                           weights_.dt_bias.data()};
    ops.gated_delta(shape_, sequences, input, states.data(), out + row * row_width());
  }
  /// Steps of `chunk` tokens through the whole stream, with the state in slot 2.
  std::vector<float> in_chunks(Ops& ops, const Stream& in, int64_t length, int64_t chunk, std::vector<float>& states) {
    std::vector<float> out(static_cast<size_t>(length * row_width()), NAN);
    for (int64_t at = 0; at < length; at += chunk) {
      const StateWrite end{std::min(length, at + chunk), 2};
      const AttentionSequence s{
          .tokens = end.tokens - at, .first_position = at, .state = 2, .states = {&end, 1}};
      step(ops, {&s, 1}, in, at, states, out.data());
    }
    return out;
  }
  void expect_same_slot(const std::vector<float>& a, uint32_t of_a, const std::vector<float>& b, uint32_t of_b,
                        const std::string& what) const {
    expect_same(slot(a, of_a).data(), slot(b, of_b).data(), delta_state_floats(shape_), what);
  }

  DeltaShape shape_;
  Weights weights_;
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isas, DeltaTest, ::testing::ValuesIn(all_isas()), isa_test_name);

TEST_P(DeltaTest, AgreesWithTheReferenceOnMixedBatches) {
  for (const DeltaShape& shape : kShapes) {
    choose(shape);
    // A prompt, an empty share, a decode, a first token, the middle of a prompt whose states inside are kept too.
    const Stream before = stream(60), now = stream(1 + 1 + 1 + 41);
    const StateWrite past[] = {{25, 0}, {35, 1}};
    const std::vector<AttentionSequence> earlier{
        {.first_token = 0, .tokens = 25, .states = {&past[0], 1}},
        {.first_token = 25, .tokens = 35, .states = {&past[1], 1}}};
    const StateWrite one[] = {{26, 3}}, first[] = {{1, 4}}, cut[] = {{36, 5}, {51, 6}, {76, 7}}, again[] = {{26, 0}};
    const std::vector<AttentionSequence> later{
        {.first_token = 0, .tokens = 1, .first_position = 25, .state = 0, .states = again},
        {.first_token = 1, .tokens = 0, .first_position = 9},
        {.first_token = 1, .tokens = 1, .first_position = 0, .state = 8, .states = first},
        {.first_token = 2, .tokens = 41, .first_position = 35, .state = 1, .states = cut}};
    std::vector<float> got = slots(), want = slots(), out(static_cast<size_t>(60 * row_width()), NAN), expected = out;
    step(*ops_, earlier, before, 0, got, out.data());
    step(*reference_, earlier, before, 0, want, expected.data());
    expect_close(out, expected, 2e-5, name_of(shape));
    out.resize(static_cast<size_t>(43 * row_width())), expected.resize(out.size());
    // The decode from a slot that another keeps.
    const AttentionSequence decode{
        .first_token = 43, .tokens = 1, .first_position = 25, .state = 0, .states = one};
    std::vector<float> alone(static_cast<size_t>(44 * row_width()), NAN), alone_expected = alone;
    step(*ops_, {&decode, 1}, now, 0, got, alone.data());
    step(*reference_, {&decode, 1}, now, 0, want, alone_expected.data());
    step(*ops_, later, now, 0, got, out.data());
    step(*reference_, later, now, 0, want, expected.data());
    expect_close(out, expected, 2e-5, name_of(shape));
    for (float* list : {alone.data(), alone_expected.data()}) std::fill_n(list, 43 * row_width(), 0.0f);
    expect_close(alone, alone_expected, 2e-5, name_of(shape));
    for (uint32_t s : {0u, 1u, 3u, 4u, 5u, 6u, 7u}) {
      const auto a = slot(got, s), b = slot(want, s);
      expect_close({a.begin(), a.end()}, {b.begin(), b.end()}, 2e-5, name_of(shape) + ", slot " + std::to_string(s));
    }
    EXPECT_TRUE(std::isnan(slot(got, 8).front())) << "a slot that nobody writes";
  }
}

TEST_P(DeltaTest, ChunksThreadsCompanyAndKeptStatesChangeNoBit) {
  const auto one_thread = cpu_ops(GetParam(), 1), fast = cpu_ops(GetParam(), 3, false);
  for (const DeltaShape& shape : kShapes) {
    choose(shape);
    const int64_t length = 90;
    const Stream in = stream(length);
    std::vector<float> states = slots(), other = slots();
    const auto whole = in_chunks(*ops_, in, length, length, states);
    for (const int64_t chunk : {1, 2, 7, 64}) {
      for (Ops* ops : {ops_.get(), one_thread.get(), fast.get()}) {
        const auto parts = in_chunks(*ops, in, length, chunk, other);
        const std::string what = "chunks of " + std::to_string(chunk) + ", " + name_of(shape);
        expect_same(parts.data(), whole.data(), static_cast<int64_t>(whole.size()), what);
        expect_same_slot(other, 2, states, 2, what);
      }
    }
    // Once more beside another, which begins with a state that was kept inside.
    const StateWrite kept[] = {{1, 0}, {48, 1}, {length, 3}}, end{length, 5};
    const AttentionSequence all{.tokens = length, .states = kept};
    std::vector<float> out(whole.size(), NAN);
    step(*ops_, {&all, 1}, in, 0, other, out.data());
    expect_same(out.data(), whole.data(), static_cast<int64_t>(whole.size()), "with kept states, " + name_of(shape));
    Stream twice = in;
    for (auto part : {&Stream::q, &Stream::k, &Stream::v, &Stream::a, &Stream::b})
      (twice.*part).insert((twice.*part).end(), (in.*part).begin(), (in.*part).end());
    const std::vector<AttentionSequence> both{
        all,
        {.first_token = length + 48, .tokens = length - 48, .first_position = 48, .state = 1, .states = {&end, 1}}};
    // What the first writes the second must not read: its states go elsewhere.
    const StateWrite elsewhere[] = {{length, 4}};
    std::vector<AttentionSequence> batch = both;
    batch[0].states = elsewhere;
    out.assign(2 * whole.size(), NAN);
    step(*ops_, batch, twice, 0, other, out.data());
    expect_same(out.data() + (length + 48) * row_width(), whole.data() + 48 * row_width(),
                (length - 48) * row_width(), "from a kept state, " + name_of(shape));
    expect_same_slot(other, 5, states, 2, "from a kept state, " + name_of(shape));
  }
}

TEST_P(DeltaTest, ANaNStaysWithItsSequence) {
  choose(kShapes[0]);
  Stream in = stream(20);
  in.v[static_cast<size_t>(4 * shape_.values())] = NAN;
  const StateWrite a{10, 0}, b{10, 1};
  const std::vector<AttentionSequence> both{{.tokens = 10, .states = {&a, 1}},
                                            {.first_token = 10, .tokens = 10, .states = {&b, 1}}};
  std::vector<float> states = slots(), out(static_cast<size_t>(20 * row_width()), NAN);
  step(*ops_, both, in, 0, states, out.data());
  const auto finite = [&](int64_t first, int64_t end) {
    return std::all_of(out.begin() + first * row_width(), out.begin() + end * row_width(),
                       [](float x) { return std::isfinite(x); });
  };
  EXPECT_TRUE(finite(0, 4));
  EXPECT_FALSE(finite(4, 10));
  EXPECT_TRUE(finite(10, 20));
  // A new sequence in the slot where it was.
  const StateWrite anew{10, 0};
  const AttentionSequence next{.first_token = 10, .tokens = 10, .state = 0, .states = {&anew, 1}};
  std::vector<float> again(out.size(), NAN);
  step(*ops_, {&next, 1}, in, 0, states, again.data());
  expect_same(again.data() + 10 * row_width(), out.data() + 10 * row_width(), 10 * row_width(), "in a slot with NaN");
}

TEST_P(DeltaTest, GatesAgreeWithTheReference) {
  for (const int64_t count : {1, 15, 16, 33, 5000}) {
    std::vector<float> x = random_.normal(count), want = x;
    const std::vector<float> gate = random_.normal(count, 5.0f);
    ops_->sigmoid_mul(x.data(), gate.data(), count);
    reference_->sigmoid_mul(want.data(), gate.data(), count);
    expect_close(x, want, 1e-6, std::to_string(count));
  }
}

}  // namespace
}  // namespace moestro::kernels::test
