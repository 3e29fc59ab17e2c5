// Experts that checkpoints hold together in a tensor, transposed, in turn or as MXFP4: every number comes to its place.

#include "store/pack/expert_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "common/formats/blocks.h"
#include "store/pack/packer.h"
#include "store/pack/slice_reader.h"
#include "store/pack/blob_numbers.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using testing::synthetic_byte;
using testing::synthetic_value;
using testing::TemporaryDirectory;

constexpr int64_t kExperts = 3;
constexpr char kExpertsOf[] = "model.layers.1.mlp.experts.";
constexpr char kMxfp4Config[] = R"({"quantization_config": {"quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}})";

float as_bf16(float f) { return bf16_to_f32(f32_to_bf16(f)); }

/// The definition, from OCP Microscaling Formats 1.0: E2M1 times 2^(E8M0 - 127).
float mxfp4_value(const std::string& tensor, int64_t index) {
  const uint8_t both = synthetic_byte(tensor + "_blocks", index / 2);
  const int bits = index % 2 == 0 ? both & 15 : both >> 4, exponent = bits >> 1 & 3, mantissa = bits & 1;
  const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                        : std::ldexp(1.0f + 0.5f * static_cast<float>(mantissa), exponent - 1);
  const float sign = bits & 8 ? -1.0f : 1.0f;
  return sign * std::ldexp(magnitude, synthetic_byte(tensor + "_scales", index / 32) - 127);
}

struct Packed {
  TemporaryDirectory dir;
  std::vector<std::byte> bytes;  ///< of the second MoE layer's last expert
  std::vector<std::string> notes;
};

void pack(const testing::CheckpointOptions& source, DType dtype, uint64_t scratch, Packed& out) {
  testing::write_checkpoint(out.dir / "src", source);
  PackObserver observer;
  observer.note = [&](const std::string& line) { out.notes.push_back(line); };
  const auto packed = pack_checkpoint(out.dir / "src", out.dir / "pack",
                                      {.experts = {dtype}, .jobs = 1, .scratch_bytes_max = scratch}, observer);
  ASSERT_TRUE(packed) << packed.status().message();
  const auto m = open_pack(out.dir / "pack");
  ASSERT_TRUE(m) << m.status().message();
  const uint32_t blob = m->expert_blob(MoeLayerId(1), ExpertId(kExperts - 1), dtype).value();
  out.bytes.resize(m->blobs[blob].length);
  ASSERT_TRUE(SliceReader::open(out.dir / "pack", *m)->read_blob(blob, out.bytes).is_ok());
}

/// f32 or bf16 at a place.
float number_at(const std::vector<std::byte>& bytes, DType dtype, int64_t part, int64_t index) {
  float full = 0;
  uint16_t half = 0;
  if (dtype == DType::kF32) return std::memcpy(&full, bytes.data() + part + index * 4, 4), full;
  return std::memcpy(&half, bytes.data() + part + index * 2, 2), bf16_to_f32(half);
}

struct Case {
  int64_t hidden, ffn;
  bool mxfp4;
  uint64_t scratch;
};
class StackedExperts : public ::testing::TestWithParam<std::tuple<DType, Case>> {};

TEST_P(StackedExperts, LieAsLaidOut) {
  const auto [dtype, c] = GetParam();
  Packed packed;
  pack({.architecture = "GptOssForCausalLM",
        .config = c.mxfp4 ? kMxfp4Config : "{}",
        .hidden = c.hidden,
        .ffn = c.ffn,
        .experts = kExperts},
       dtype, c.scratch, packed);
  const ExpertLayout layout(c.hidden, c.ffn, dtype, true);
  ASSERT_EQ(packed.bytes.size(), static_cast<size_t>(layout.bytes()));
  const std::string prefix = kExpertsOf;
  const int64_t e = kExperts - 1, hidden = c.hidden, ffn = c.ffn;
  const auto gate_up = [&](int64_t h, int64_t row) {
    return c.mxfp4 ? mxfp4_value(prefix + "gate_up_proj", (e * 2 * ffn + row) * hidden + h)
                   : as_bf16(synthetic_value(prefix + "gate_up_proj", (e * hidden + h) * 2 * ffn + row));
  };
  const auto down = [&](int64_t h, int64_t f) {
    return c.mxfp4 ? mxfp4_value(prefix + "down_proj", (e * hidden + h) * ffn + f)
                   : as_bf16(synthetic_value(prefix + "down_proj", (e * ffn + f) * hidden + h));
  };
  for (int64_t t = 0; t < layout.tiles(); ++t) {
    const ExpertTile tile = layout.tile(t);
    for (int64_t f = 0; f < tile.ffn; ++f)
      for (int64_t h = 0; h < hidden; ++h) {
        const int64_t row = 2 * (tile.first_ffn + f), at = f * hidden + h;
        ASSERT_EQ(number_at(packed.bytes, dtype, tile.offset + tile.gate, at), gate_up(h, row)) << f << ", " << h;
        ASSERT_EQ(number_at(packed.bytes, dtype, tile.offset + tile.up, at), gate_up(h, row + 1)) << f << ", " << h;
        ASSERT_EQ(number_at(packed.bytes, dtype, tile.offset + tile.down, h * tile.ffn + f),
                  down(h, tile.first_ffn + f))
            << h << ", " << f;
      }
  }
  EXPECT_TRUE(packed.notes.empty());
}
INSTANTIATE_TEST_SUITE_P(Forms, StackedExperts,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Values(Case{72, 37, false, uint64_t{768} << 20},
                                                              Case{320, 1100, false, uint64_t{768} << 20},
                                                              Case{320, 1100, false, 300'000},  // bands of a few tiles
                                                              Case{96, 64, true, uint64_t{768} << 20},
                                                              Case{320, 1120, true, 300'000})));

// Blocks in turn: gate and up keep their bits, in the layout of common/formats/blocks.h.
TEST(StackedMxfp4, KeepsItsBits) {
  Packed packed;
  pack({.architecture = "GptOssForCausalLM", .config = kMxfp4Config, .hidden = 320, .ffn = 1120, .experts = kExperts},
       DType::kMXFP4, 300'000, packed);
  const ExpertLayout layout(320, 1120, DType::kMXFP4, true);
  ASSERT_EQ(packed.bytes.size(), static_cast<size_t>(layout.bytes()));
  const std::string prefix = kExpertsOf;
  const int64_t e = kExperts - 1;
  std::vector<float> numbers(1120);
  for (int64_t t = 0; t < layout.tiles(); ++t) {
    const ExpertTile tile = layout.tile(t);
    const auto row = [&](int64_t part, int64_t r, int64_t cols) {
      formats::dequantise(DType::kMXFP4,
                          packed.bytes.data() + tile.offset + part + r * row_bytes(DType::kMXFP4, cols), cols,
                          numbers.data());
    };
    for (int64_t f = 0; f < tile.ffn; ++f)
      for (const int64_t up : {0, 1}) {
        row(up ? tile.up : tile.gate, f, 320);
        const int64_t first = (e * 2240 + 2 * (tile.first_ffn + f) + up) * 320;
        for (int64_t h = 0; h < 320; ++h)
          ASSERT_EQ(numbers[static_cast<size_t>(h)], mxfp4_value(prefix + "gate_up_proj", first + h)) << f;
      }
    for (int64_t h = 0; h < 320; ++h) {
      row(tile.down, h, tile.ffn);
      for (int64_t f = 0; f < tile.ffn; ++f)
        ASSERT_EQ(numbers[static_cast<size_t>(f)],
                  mxfp4_value(prefix + "down_proj", (e * 320 + h) * 1120 + tile.first_ffn + f));
    }
  }
}

// Whatever the precision of the matrices.
TEST(ExpertBiases, AreExactAtEveryPrecision) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
    Packed packed;
    pack({.architecture = "GptOssForCausalLM",
          .dtype = DType::kF32,
          .hidden = 96,
          .ffn = 70,
          .experts = kExperts,
          .value = [](const std::string& name, int64_t i) {
            // Of few magnitudes, for 12 bits; biases are those that no narrow format holds.
            return name.ends_with("_bias") ? synthetic_value(name, i) * 1.0001f
                                           : synthetic_value(name, i) * 0.1f + 1.5f;
          }},
         dtype, uint64_t{768} << 20, packed);
    const ExpertLayout layout(96, 70, dtype, true);
    ASSERT_EQ(packed.bytes.size(), static_cast<size_t>(layout.bytes()));
    const ExpertBiases at = layout.biases();
    const std::string prefix = kExpertsOf;
    const int64_t e = kExperts - 1;
    for (int64_t f = 0; f < 70; ++f)
      for (const int64_t up : {0, 1})
        ASSERT_EQ(number_at(packed.bytes, DType::kF32, up ? at.up : at.gate, f),
                  synthetic_value(prefix + "gate_up_proj_bias", e * 140 + 2 * f + up) * 1.0001f)
            << dtype_name(dtype);
    for (int64_t h = 0; h < 96; ++h)
      ASSERT_EQ(number_at(packed.bytes, DType::kF32, at.down, h),
                synthetic_value(prefix + "down_proj_bias", e * 96 + h) * 1.0001f);
    EXPECT_EQ(packed.bytes.size() % kDiskAlign, 0u);
  }
}

class Mxfp4Checkpoint : public ::testing::Test {
 protected:
  Status open() { return Checkpoint::open(dir_.path()).status(); }
  void write() {
    testing::write_checkpoint(dir_.path(), {.architecture = "GptOssForCausalLM", .config = kMxfp4Config, .hidden = 64,
                                            .ffn = 32, .experts = kExperts});
  }
  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = testing::read_text(dir_ / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    testing::write_text(dir_ / file, text.replace(at, from.size(), to));
  }
  TemporaryDirectory dir_;
};

TEST_F(Mxfp4Checkpoint, WhatIsMissingOrOfAnotherShapeIsNamed) {
  write();
  ASSERT_TRUE(open().is_ok()) << open().message();
  replace("model.safetensors", "gate_up_proj_scales", "gate_up_proj_scalex");
  EXPECT_THAT(open().message(), HasSubstr("gate_up_proj_scales' is missing; by quantization_config"));
  write();
  replace("config.json", R"("intermediate_size":32)", R"("intermediate_size":64)");
  EXPECT_THAT(open().message(), HasSubstr("by config.json it is [3, 128, 2"));
  replace("config.json", R"("intermediate_size":64)", R"("intermediate_size":48)");
  EXPECT_THAT(open().message(), HasSubstr("multiples of 32"));
}

TEST_F(Mxfp4Checkpoint, APlainMatrixAmongItsExpertsIsRefused) {
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  testing::write_checkpoint(dir_.path(), {.architecture = "GptOssForCausalLM",
                                          .extra = {{down, {kExperts, 64, 32}}},
                                          .config = kMxfp4Config,
                                          .hidden = 64,
                                          .ffn = 32,
                                          .experts = kExperts});
  EXPECT_THAT(open().message(), HasSubstr("both tensor '" + down + "' and its quantised form"));
  replace("model.safetensors", down + "_scales", down + "_scalex");
  replace("model.safetensors", down + "_blocks", down + "_blockx");
  EXPECT_THAT(open().message(), HasSubstr(down + "_scales' is missing; by quantization_config"));
}

TEST_F(Mxfp4Checkpoint, WithoutItsConfigItIsRefused) {
  write();
  replace("config.json", "mxfp4", "other");
  EXPECT_THAT(open().message(), HasSubstr("quant_method 'other' is not supported (mxfp4 is)"));
  testing::write_checkpoint(dir_.path(), {.architecture = "GptOssForCausalLM", .hidden = 64, .ffn = 32});
  std::string config = testing::read_text(dir_ / "config.json");
  write();
  testing::write_text(dir_ / "config.json", config);
  EXPECT_THAT(open().message(), HasSubstr("gate_up_proj' is missing"));
}

TEST_F(Mxfp4Checkpoint, NumbersThatAreNotFiniteAreNamed) {
  for (const int exponent : {253, 254, 255}) {
    write();
    const std::string text = testing::read_text(dir_ / "model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const size_t entry = text.find("down_proj_scales"), offsets = text.find("data_offsets\":[", entry);
    const auto at = static_cast<size_t>(std::stoull(text.substr(offsets + 15))) + 8 + header;
    std::string damaged = text;
    damaged[at + 5] = static_cast<char>(exponent);
    testing::write_text(dir_ / "model.safetensors", damaged);
    const TemporaryDirectory out;
    const auto packed = pack_checkpoint(dir_.path(), out / "pack", {}, {});
    ASSERT_FALSE(packed) << exponent;
    EXPECT_THAT(packed.status().message(), HasSubstr("down_proj' is infinite or not a number at block 5"));
  }
}

// A bias that is no number is found by `inspect --verify` and by the store, as a weight is.
TEST(ExpertBiases, AreLookedAtWhenAPackIsVerified) {
  Packed packed;
  pack({.architecture = "GptOssForCausalLM", .hidden = 64, .ffn = 32, .experts = kExperts}, DType::kBF16, 1 << 20,
       packed);
  const auto m = open_pack(packed.dir / "pack");
  const auto numbers = BlobNumbers::of(*m);
  ASSERT_TRUE(numbers);
  const uint32_t blob = m->expert_blob(MoeLayerId(1), ExpertId(kExperts - 1), DType::kBF16).value();
  EXPECT_TRUE(numbers->check(blob, 0, packed.bytes).is_ok());
  const ExpertBiases at = ExpertLayout(64, 32, DType::kBF16, true).biases();
  const float nan = std::nanf("");
  for (const auto& [offset, name] : {std::pair{at.gate, "gate bias"}, {at.up, "up bias"}, {at.down, "down bias"}}) {
    std::vector<std::byte> damaged = packed.bytes;
    std::memcpy(damaged.data() + offset + 8, &nan, sizeof nan);
    const Status status = numbers->check(blob, 0, damaged);
    EXPECT_THAT(status.message(), HasSubstr(std::string(name) + ": value 2 is infinite or not a number"));
  }
}

}  // namespace
}  // namespace moestro::store
