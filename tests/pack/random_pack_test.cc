// Packs of random weights: every number is where a checkpoint's would be, and the same whoever makes it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "common/float16.h"
#include "store/pack/packer.h"
#include "store/pack/random_weights.h"
#include "store/pack/slice_reader.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;

RandomModel small_model(uint64_t seed) {
  RandomModel model{testing::synthetic_config({.architecture = "MixtralForCausalLM"}), "", {}, seed};
  model.files = {{"config.json", model.config_json}};
  return model;
}

TEST(RandomPack, TheSameSeedMakesTheSameBytesWhateverTheThreadsAndTheMemory) {
  const testing::TemporaryDirectory dir;
  const PackOptions alone{.experts = {DType::kBF16, DType::kInt4, DType::kBF16In12},
                          .dense = DType::kBF16In12,
                          .jobs = 1,
                          .model_name = "m",
                          .scratch_bytes_max = 1};
  PackOptions together = alone;
  together.jobs = 3;
  together.scratch_bytes_max = 64 << 20;
  ASSERT_TRUE(pack_random(small_model(7), dir / "a", alone, {}));
  ASSERT_TRUE(pack_random(small_model(7), dir / "b", together, {}));
  ASSERT_TRUE(pack_random(small_model(8), dir / "c", together, {}));
  EXPECT_EQ(testing::read_directory(dir / "a"), testing::read_directory(dir / "b"));
  const auto other = testing::read_directory(dir / "c");
  for (const auto& [name, bytes] : testing::read_directory(dir / "a"))
    if (name != "config.json") {
      EXPECT_NE(other.at(name), bytes) << name;
    }
}

TEST(RandomPack, IsWholeAndNoTwoExpertsAreAlike) {
  const testing::TemporaryDirectory dir;
  const auto packed =
      pack_random(small_model(1), dir / "p", {.experts = {DType::kBF16}, .jobs = 2, .model_name = "m"}, {});
  ASSERT_TRUE(packed) << packed.status().message();
  const auto manifest = open_pack(dir / "p");
  ASSERT_TRUE(manifest) << manifest.status().message();
  const auto report = verify_pack(dir / "p", *manifest, 2, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->blobs_bad + report->copied_bad, 0u);
  EXPECT_EQ(report->bytes, packed->bytes);
  std::set<uint64_t> first_slices;
  for (const Blob& blob : manifest->blobs)
    if (blob.kind == BlobKind::kExpert) first_slices.insert(blob.slices.front().xxh3_64);
  EXPECT_EQ(first_slices.size(), 6u) << "two layers of three";
}

TEST(RandomPack, ADiskWithoutRoomIsFoundBeforeAnythingIsWritten) {
  const testing::TemporaryDirectory dir;
  const uint64_t room = std::filesystem::space(dir.path()).available;
  if (room > uint64_t{1} << 40) GTEST_SKIP() << "a disk with more than 1 TiB of room";
  testing::CheckpointOptions shape{.architecture = "MixtralForCausalLM"};
  shape.hidden = 4096;
  shape.ffn = 14336;
  shape.experts = 8;
  shape.layers = static_cast<int64_t>(room / (8 * 3 * 2 * uint64_t(shape.hidden * shape.ffn))) + 1;
  const auto packed = pack_random({testing::synthetic_config(shape), "", {}, 1}, dir / "p",
                                  {.experts = {DType::kBF16}, .model_name = "m"}, {});
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.status().code(), Code::kExhausted);
  EXPECT_THAT(packed.status().message(), HasSubstr(" bytes are missing; make room"));
  EXPECT_FALSE(std::filesystem::exists(dir / "p"));
}

std::vector<float> numbers(const RandomWeights& weights, const std::string& tensor, uint64_t first, size_t count) {
  std::vector<uint16_t> bits(count);
  weights.fill(tensor, first, bits);
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(bf16_to_f32(b));
  return values;
}

class RandomNumbers : public ::testing::Test {
 protected:
  const model::ModelDescription model_ =
      model::describe_model(testing::synthetic_config({.architecture = "MixtralForCausalLM"}), "").value();
  const RandomWeights weights_{model_, 3};
};

TEST_F(RandomNumbers, APieceIsWhatTheWholeHasThere) {
  const std::string tensor = model_.experts.front().down;
  const auto whole = numbers(weights_, tensor, 0, 1000);
  for (const auto& [first, count] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 1}, {1, 1}, {1, 2}, {3, 6}, {4, 4}, {5, 3}, {6, 990}, {999, 1}, {2, 0}}) {
    const auto piece = numbers(weights_, tensor, first, count);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
        << first << ", " << count;
  }
}

TEST_F(RandomNumbers, AreNormalAndOnesWhereANormIs) {
  constexpr size_t kCount = 1 << 20;
  for (const auto& [tensor, deviation] : std::vector<std::pair<std::string, double>>{
           {model_.experts.front().gate, 0.02}, {"model.embed_tokens.weight", 1.0}}) {
    const auto values = numbers(weights_, tensor, 0, kCount);
    double sum = 0, squares = 0, fourth = 0, furthest = 0, before = 0, along = 0;
    for (const float value : values) {
      const double v = static_cast<double>(value) / deviation;
      sum += v, squares += v * v, fourth += v * v * v * v, along += v * before, before = v;
      furthest = std::max(furthest, std::fabs(v));
    }
    // Four standard errors of a million draws, and what bf16 rounds.
    EXPECT_NEAR(sum / kCount, 0, 4e-3) << tensor;
    EXPECT_NEAR(squares / kCount, 1, 8e-3) << tensor;
    EXPECT_NEAR(fourth / kCount, 3, 6e-2) << tensor;
    EXPECT_NEAR(along / kCount, 0, 4e-3) << tensor << ": neighbours";
    EXPECT_GT(furthest, 4) << tensor;
    EXPECT_LT(furthest, 4.4) << tensor;
  }
  for (const model::DenseTensor& t : model_.dense)
    if (t.name.ends_with("norm.weight")) {
      EXPECT_EQ(numbers(weights_, t.source_name, 1, 5), std::vector<float>(5, 1.0f)) << t.name;
    }
}

}  // namespace
}  // namespace moestro::store
