// Activations that become NaN, infinite or absurd: the sequence fails alone, by name, and nothing of it is left behind.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::engine::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kSequences = 16;

class FiniteTest : public ::testing::Test {
 protected:
  using Edit = std::function<void(uint32_t blob, std::vector<std::byte>& bytes)>;

  static const Fixture& fixture() {
    static const std::vector<Fixture> all = fixtures();
    for (const Fixture& f : all)
      if (f.name.starts_with("qwen3_moe")) return f;
    return any_fixture();
  }
  static std::unique_ptr<Bench> bench(DType experts, Edit edit = nullptr, int threads = 1) {
    BenchOptions options{.experts = experts, .threads = threads};
    return std::make_unique<Bench>(fixture(), options, [&](std::unique_ptr<store::BlobSource> inner) {
      return std::make_unique<LateSource>(std::move(inner), LateSource::Options{.edit = std::move(edit)});
    });
  }
  /// Two tokens for each of the sequences.
  static Result<StepOutcome> run_all(Bench& b, uint64_t first_id = 0) {
    const auto ids = fixture().prompts("f32").front().ids;
    const auto vocab = static_cast<size_t>(b.engine().spec().vocab);
    for (size_t i = 0; i < kSequences; ++i)
      b.add(first_id + i, {static_cast<TokenId>((static_cast<size_t>(ids[0]) + 17 * i) % vocab),
                           static_cast<TokenId>((29 * i + 5) % vocab)})
          .sample = true;
    return b.run();
  }
  static bool uses(const SequenceOutcome& s, uint32_t layer, uint32_t expert) {
    return std::any_of(s.activations.begin(), s.activations.end(),
                       [&](const auto& c) { return c.layer.value == layer && c.expert.value == expert; });
  }
  /// An expert of the MoE layer that some use and others do not.
  static uint32_t expert_of_some(const StepOutcome& outcome, uint32_t layer, int64_t experts) {
    for (uint32_t e = 0; e < experts; ++e) {
      const auto users = std::count_if(outcome.sequences.begin(), outcome.sequences.end(),
                                       [&](const auto& s) { return uses(s, layer, e); });
      if (users > 0 && users < kSequences) return e;
    }
    ADD_FAILURE() << "every expert is used by all or by none";
    return 0;
  }
  static size_t layer_of(const Bench& b, uint32_t moe_layer) {
    const auto& layers = const_cast<Bench&>(b).engine().spec().layers;
    for (size_t i = 0; i < layers.size(); ++i)
      if (layers[i].moe_index && layers[i].moe_index->value == moe_layer) return i;
    return layers.size();
  }
  /// One expert of the last MoE layer is edited: who uses it fails in that layer, the others get what they get without.
  void expect_only_users_fail(DType dtype,
                              const std::function<void(const ExpertLayout&, std::vector<std::byte>&)>& spoil,
                              const std::string& words, int threads = 1);
};

void FiniteTest::expect_only_users_fail(DType dtype,
                                        const std::function<void(const ExpertLayout&, std::vector<std::byte>&)>& spoil,
                                        const std::string& words, int threads) {
  SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + words);
  const auto plain = bench(dtype);
  const auto expected = run_all(*plain);
  ASSERT_TRUE(expected.is_ok());
  const model::ModelSpec& spec = plain->engine().spec();
  const auto layer = static_cast<uint32_t>(spec.moe_layers() - 1);
  const uint32_t expert = expert_of_some(*expected, layer, spec.moe().experts);
  const uint32_t blob = *plain->source().manifest().expert_blob(MoeLayerId(layer), ExpertId(expert), dtype);
  const ExpertLayout layout(spec.moe().expert.hidden, spec.moe().expert.ffn, dtype);
  const auto spoiled = bench(dtype, [&](uint32_t b, std::vector<std::byte>& bytes) {
    if (b == blob) spoil(layout, bytes);
  }, threads);
  for (const uint64_t first_id :
       {uint64_t{0}, uint64_t{100}}) {  // the second time in blocks that failed sequences have had
    const auto outcome = run_all(*spoiled, first_id);
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    uint32_t users = 0;
    for (size_t i = 0; i < kSequences; ++i) {
      const SequenceOutcome& s = outcome->sequences[i];
      if (uses(expected->sequences[i], layer, expert)) {
        ++users;
        EXPECT_EQ(s.status.code(), Code::kInternal);
        EXPECT_NE(s.status.message().find("layer " + std::to_string(layer_of(*plain, layer)) + ": "), std::string::npos)
            << s.status.message();
        EXPECT_NE(s.status.message().find(words), std::string::npos) << s.status.message();
        EXPECT_TRUE(s.sampled.empty() && s.activations.empty());
      } else {
        ASSERT_TRUE(s.status.is_ok()) << s.status.message();
        EXPECT_EQ(s.sampled.at(0).id, expected->sequences[i].sampled.at(0).id);
        EXPECT_EQ(s.activations, expected->sequences[i].activations);
      }
    }
    EXPECT_EQ(outcome->nonfinite_sequences, users);
    for (uint64_t i = 0; i < kSequences; ++i) spoiled->release(first_id + i);
  }
}

void fill_scales(const ExpertLayout& layout, std::vector<std::byte>& bytes, float scale, bool gate = true) {
  const uint16_t stored = f32_to_bf16(scale);
  const ExpertTile t = layout.tile(0);
  for (int64_t f = 0; gate && f < t.ffn; ++f)
    std::memcpy(bytes.data() + t.offset + t.gate_scales + f * parameter_bytes(layout.dtype(), layout.hidden()), &stored,
                2);
  for (int64_t h = 0; h < layout.hidden(); ++h)
    std::memcpy(bytes.data() + t.offset + t.down_scales + h * parameter_bytes(layout.dtype(), t.ffn), &stored, 2);
}

TEST_F(FiniteTest, NanWeightsOfOneExpert) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    expect_only_users_fail(
        dtype, [](const ExpertLayout&, std::vector<std::byte>& b) { std::fill(b.begin(), b.end(), std::byte{0xff}); },
        "not finite");
}

TEST_F(FiniteTest, RubbishScalesOfOneExpert) {
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const float scale : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38f})
      expect_only_users_fail(
          dtype, [scale](const ExpertLayout& l, std::vector<std::byte>& b) { fill_scales(l, b, scale); }, "not finite",
          2);
    expect_only_users_fail(
        dtype, [](const ExpertLayout& l, std::vector<std::byte>& b) { fill_scales(l, b, 1e30f, /*gate=*/false); },
        "more than a norm in f32 can hold");
  }
}

TEST_F(FiniteTest, WhatAFailedSequenceWroteIsRefusedAndOverwritten) {
  bool damaged = false;
  const auto b = bench(DType::kF32, [&damaged](uint32_t, std::vector<std::byte>& bytes) {
    if (damaged) std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  });
  const std::vector<TokenId> prompt(21, 3);
  const auto expected = b->score({prompt}, 1000);
  const auto step = [&](uint64_t id, const std::vector<TokenId>& tokens, bool with_damage, int position_shift = 0) {
    damaged = with_damage;
    b->add(id, tokens);
    for (auto& t : b->plan().tokens) t.position += position_shift;
    return std::move(b->run()->sequences.at(0).status);
  };
  // The first positions of a sequence: nothing of it is left to go on from.
  EXPECT_NE(step(1, {prompt.begin(), prompt.begin() + 10}, true).message().find("9 more of this step"),
            std::string::npos);
  EXPECT_NE(step(1, {3}, false).message().find("does not hold"), std::string::npos);
  // A later one: what came before stands, and the position can be computed again.
  ASSERT_TRUE(step(2, {prompt.begin(), prompt.begin() + 20}, false).is_ok());
  EXPECT_NE(step(2, {3}, true).message().find("layer 0: "), std::string::npos);
  EXPECT_NE(step(2, {3}, false).message().find("does not hold"), std::string::npos);
  EXPECT_TRUE(step(2, {3}, false, -2).is_ok());
  for (const uint64_t id : {1, 2}) b->release(id);
  EXPECT_EQ(b->score({prompt}, 1000), expected) << "in the blocks of those that failed";
}

TEST_F(FiniteTest, DamagedDenseWeightsFailEverySequenceAndNothingElse) {
  const auto manifest = bench(DType::kF32)->source().manifest();
  for (const store::PackedTensor& tensor : manifest.tensors) {
    const auto b = bench(DType::kF32, [&](uint32_t blob, std::vector<std::byte>& bytes) {
      if (blob == tensor.blob) std::memset(bytes.data() + tensor.offset, 0xff, 4);  // its first value
    });
    const auto outcome = run_all(*b);
    ASSERT_TRUE(outcome.is_ok());
    const auto failed = std::count_if(outcome->sequences.begin(), outcome->sequences.end(),
                                      [](const auto& s) { return !s.status.is_ok(); });
    EXPECT_EQ(outcome->nonfinite_sequences, static_cast<uint32_t>(failed)) << tensor.name;
    if (tensor.name.find("embed") == std::string::npos)
      EXPECT_EQ(failed, kSequences) << tensor.name;  // a row of it is one token's
    for (const SequenceOutcome& s : outcome->sequences)
      if (!s.status.is_ok())
        EXPECT_NE(s.status.message().find(" not finite at position "), std::string::npos) << s.status.message();
  }
}

TEST_F(FiniteTest, AFailedSequenceWantsNoMoreExperts) {
  const auto plain = bench(DType::kF32);
  const auto add = [](Bench& b) {
    b.add(1, {5, 6, 7, 8}).sample = true;
    return b.run();
  };
  const uint64_t all = add(*plain)->expert_misses;
  const auto& manifest = plain->source().manifest();
  const auto b = bench(DType::kF32, [&](uint32_t blob, std::vector<std::byte>& bytes) {
    if (manifest.blobs[blob].kind == store::BlobKind::kExpert) std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  });
  const auto outcome = add(*b);
  EXPECT_FALSE(outcome->sequences.at(0).status.is_ok());
  EXPECT_LT(outcome->expert_misses, all) << "those of the first MoE layer alone";
}

}  // namespace
}  // namespace moestro::engine::testing
