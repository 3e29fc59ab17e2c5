// Blocks on request: every block of a pack is the encoder's, and what cannot or should not be converted is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "common/dense_layout.h"
#include "common/float16.h"
#include "common/formats/blocks.h"
#include "common/formats/encode.h"
#include "store/pack/checkpoint.h"
#include "store/pack/convert.h"
#include "store/pack/packer.h"
#include "store/pack/requantise.h"
#include "store/pack/slice_reader.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::synthetic_value;
using ::testing::Contains;
using ::testing::HasSubstr;

fs::path gguf(const std::string& name) {
  return test::source_dir() / "tests/fixtures/gguf" / name / (name + ".gguf");
}

class Requantise : public ::testing::Test {
 protected:
  /// Rows that each format's blocks divide, except where a width says otherwise.
  void write_source(int64_t hidden, int64_t ffn) {
    const std::string config = R"({"head_dim": 128})";  // of 4 heads
    testing::write_checkpoint(dir_ / "src", {.architecture = "MixtralForCausalLM", .config = config, .hidden = hidden,
                                             .ffn = ffn, .experts = 2, .layers = 1});
  }
  Status pack(const fs::path& source, const PackOptions& options) {
    notes_.clear();
    fs::remove_all(dir_ / "pack");
    return pack_checkpoint(source, dir_ / "pack", options,
                           {.progress = {}, .note = [&](const std::string& line) { notes_.push_back(line); }})
        .status();
  }
  Manifest packed(const fs::path& source, const PackOptions& options) {
    const Status done = pack(source, options);
    EXPECT_TRUE(done.is_ok()) << done.message();
    auto manifest = open_pack(dir_ / "pack");
    EXPECT_TRUE(manifest) << manifest.status().message();
    return manifest ? std::move(*manifest) : Manifest();
  }
  std::vector<std::byte> blob(const Manifest& m, uint32_t index) const {
    std::vector<std::byte> bytes(m.blobs[index].length);
    EXPECT_TRUE(SliceReader::open(dir_ / "pack", m)->read_blob(index, bytes).is_ok());
    return bytes;
  }
  void expect_refused(const fs::path& source, const PackOptions& options, const std::string& says) {
    const Status refused = pack(source, options);
    EXPECT_EQ(refused.code(), Code::kUnsupported) << says;
    EXPECT_THAT(refused.message(), HasSubstr(says));
    EXPECT_FALSE(fs::exists(dir_ / "pack"));
  }
  testing::TemporaryDirectory dir_;
  std::vector<std::string> notes_;
};

/// Numbers [first, first + count) of a tensor of bf16, encoded.
std::vector<std::byte> encoded(DType d, const std::string& tensor, int64_t first, int64_t count) {
  std::vector<float> row(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    row[static_cast<size_t>(i)] = bf16_to_f32(f32_to_bf16(synthetic_value(tensor, first + i)));
  std::vector<std::byte> out(static_cast<size_t>(row_bytes(d, count)));
  EXPECT_TRUE(formats::encode(d, row.data(), count, out.data()));
  return out;
}

void expect_rows(const std::vector<std::byte>& blob, int64_t at, DType d, const std::string& tensor, int64_t rows,
                 int64_t cols, int64_t first_row, int64_t first_col, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const auto wanted = encoded(d, tensor, (first_row + r) * width + first_col, cols);
    ASSERT_EQ(std::memcmp(blob.data() + at + r * row_bytes(d, cols), wanted.data(), wanted.size()), 0)
        << dtype_name(d) << " " << tensor << " row " << first_row + r << " columns from " << first_col;
  }
}

TEST_F(Requantise, EveryRowIsThatOfTheEncoder) {
  const DType formats[] = {DType::kQ8_0,  DType::kQ6K,  DType::kQ5K, DType::kQ4K,   DType::kQ5_0, DType::kQ4_0,
                           DType::kIQ4NL, DType::kMXFP4, DType::kFP8, DType::kFP8G32};
  for (const DType d : formats) {
    // Several tiles, the last one shorter.
    const bool of_32 = block_shape(d).columns == 32;
    const int64_t hidden = of_32 ? 544 : 512, ffn = of_32 ? 1120 : 1280;
    write_source(hidden, ffn);
    const Manifest m = packed(dir_ / "src", {.experts = {d}, .dense = d, .jobs = 2});
    const std::string prefix = "model.layers.0.block_sparse_moe.experts.1.";
    const auto expert = blob(m, m.expert_blob(MoeLayerId(0), ExpertId(1), d).value());
    const ExpertLayout layout(hidden, ffn, d);
    for (int64_t t = 0; t < layout.tiles(); ++t) {
      const ExpertTile tile = layout.tile(t);
      const int64_t first = tile.first_ffn;
      expect_rows(expert, tile.offset + tile.gate, d, prefix + "w1.weight", tile.ffn, hidden, first, 0, hidden);
      expect_rows(expert, tile.offset + tile.up, d, prefix + "w3.weight", tile.ffn, hidden, first, 0, hidden);
      expect_rows(expert, tile.offset + tile.down, d, prefix + "w2.weight", hidden, tile.ffn, 0, first, ffn);
      if (HasFatalFailure()) return;
    }
    size_t blocks = 0;
    for (const PackedTensor& t : m.tensors) {
      const bool product =
          t.shape.size() == 2 && t.name != "embed.weight" && t.name.find("router") == std::string::npos;
      if (!product) {
        EXPECT_FALSE(is_blocks(t.dtype)) << t.name;
        continue;
      }
      EXPECT_EQ(t.dtype, d) << t.name;
      ++blocks;
      if (t.name == "layers.0.attn.o.weight")
        expect_rows(blob(m, t.blob), static_cast<int64_t>(t.offset), d, "model.layers.0.self_attn.o_proj.weight",
                    t.shape[0], t.shape[1], 0, 0, t.shape[1]);
    }
    EXPECT_GE(blocks, 5u);  // q, k, v, o and the head
  }
}

TEST_F(Requantise, BytesAreTheSameWithAnyNumberOfThreadsAndAnyMemory) {
  write_source(512, 1280);
  const PackOptions one{.experts = {DType::kQ4K, DType::kFP8}, .dense = DType::kQ6K, .jobs = 1, .model_name = "m"};
  packed(dir_ / "src", one);
  const auto bytes = testing::read_directory(dir_ / "pack");
  PackOptions three = one;
  three.jobs = 3, three.scratch_bytes_max = 1;
  packed(dir_ / "src", three);
  EXPECT_EQ(testing::read_directory(dir_ / "pack"), bytes);
}

TEST_F(Requantise, OfBlocksThatHaveMoreBits) {
  const auto formats_of = [](const Manifest& m) {
    std::map<std::string, DType> formats;
    for (const PackedTensor& t : m.tensors) formats[t.name] = t.dtype;
    return formats;
  };
  Manifest m = packed(gguf("dots1_q8_0"), {.experts = {DType::kQ4_0}});
  EXPECT_EQ(m.expert_precisions, std::vector{DType::kQ4_0});
  EXPECT_THAT(notes_, Contains(HasSubstr("quantised a second time: experts from q8_0 (8.5 bits a weight) to q4_0 (4.5 "
                                         "bits a weight); both errors add up")));
  // Matrices that have no more bits stay as they are, and so do embedding, router and vectors.
  const auto native = formats_of(packed(gguf("qwen3moe_k_quants"), {}));
  m = packed(gguf("qwen3moe_k_quants"), {.dense = DType::kQ5_0});
  EXPECT_THAT(notes_, Contains(HasSubstr("quantised a second time: dense weights to q5_0 (5.5 bits a weight)")));
  EXPECT_EQ(m.expert_precisions, std::vector{DType::kMixed});
  size_t converted = 0;
  for (const auto& [name, d] : formats_of(m)) {
    const DType own = native.at(name);
    const bool product = name.find(".attn.") != std::string::npos && name.ends_with(".weight") && is_blocks(own);
    const bool wide = product && formats::bits_per_value(own) > 5.5;
    EXPECT_EQ(d, wide ? DType::kQ5_0 : own) << name << " of " << dtype_name(own);
    converted += wide;
  }
  EXPECT_GE(converted, 1u);
  EXPECT_EQ(dense_format(DType::kQ4K, DType::kQ5_0), DType::kQ4K);
  EXPECT_EQ(dense_format(DType::kQ4K, DType::kInt8), DType::kInt8);
  EXPECT_EQ(dense_format(DType::kBF16, DType::kQ5_0), DType::kQ5_0);
}

TEST_F(Requantise, LowCopiesNextToTheSourcesOwnFormats) {
  const Manifest m = packed(gguf("qwen3moe_k_quants"), {.experts = {DType::kMixed, DType::kInt2}});
  EXPECT_EQ(m.expert_precisions, (std::vector{DType::kMixed, DType::kInt2}));
  EXPECT_FALSE(m.expert_formats.empty());
}

TEST_F(Requantise, RefusesWhatWouldAddNothing) {
  expect_refused(gguf("dots1_q8_0"), {.experts = {DType::kFP8G32}},
                 "experts as fp8_g32 (9 bits a weight): the source has them as q8_0 (8.5 bits a weight), so it would");
  expect_refused(gguf("minimax-m2_q4_0"), {.experts = {DType::kIQ4NL}}, "choose a format of fewer bits, or leave --");
  expect_refused(gguf("qwen3moe_k_quants"), {.dense = DType::kFP8G32}, "dense weights as fp8_g32 (9 bits a weight)");
}

TEST_F(Requantise, RefusesFormatsWithoutAnEncoder) {
  write_source(512, 512);
  for (const DType d : {DType::kQ2K, DType::kQ3K, DType::kQ4_1, DType::kIQ4XS, DType::kNVFP4, DType::kInt4G128}) {
    expect_refused(dir_ / "src", {.experts = {d}}, "experts as " + std::string(dtype_name(d)) + ": nothing is");
    expect_refused(dir_ / "src", {.dense = d}, "--dense makes these of blocks: q8_0, q6_k,");
  }
  expect_refused(dir_ / "src", {.experts = {DType::kMixed}}, "experts as mixed");
}

TEST_F(Requantise, RefusesRowsThatAreNotWholeBlocksAndSaysWhatWouldDo) {
  write_source(512, 384);
  expect_refused(dir_ / "src", {.experts = {DType::kQ4K}},
                 "experts as q4_k: down has rows of 384 numbers, and a block is 256; these would do: q8_0, q5_0, q4_0, "
                 "iq4_nl, mxfp4, fp8, fp8_g32");
  packed(dir_ / "src", {.experts = {DType::kFP8}, .dense = DType::kQ4K});
  write_source(480, 512);
  expect_refused(dir_ / "src", {.experts = {DType::kFP8}}, "gate and up have rows of 480 numbers, and a block is 128");
  expect_refused(dir_ / "src", {.dense = DType::kQ6K}, "q_proj.weight' has rows of 480 numbers");
  write_source(72, 40);
  expect_refused(dir_ / "src", {.experts = {DType::kQ8_0}}, "no blocks fit; int8 or int4 would do");
}

TEST_F(Requantise, NamesTheTensorWhoseNumbersDoNotFit) {
  testing::write_checkpoint(dir_ / "src", {.architecture = "MixtralForCausalLM", .hidden = 64, .ffn = 64, .experts = 2,
                                           .layers = 1, .value = [](const std::string& tensor, int64_t i) {
                                             return i == 70 && tensor.ends_with("experts.1.w2.weight")
                                                        ? 1e30f
                                                        : synthetic_value(tensor, i);
                                           }});
  const Status refused = pack(dir_ / "src", {.experts = {DType::kQ8_0}});
  EXPECT_THAT(refused.message(), HasSubstr("'model.layers.0.block_sparse_moe.experts.1.w2.weight' holds values that "
                                           "q8_0 cannot"));
  packed(dir_ / "src", {.experts = {DType::kMXFP4}});
}

// scripts/python/encoder_errors.py models/demo/model.safetensors prints the errors of llama.cpp's encoders.
TEST_F(Requantise, TheDemoModelAtLeastAsWellAsTheReference) {
  const std::pair<DType, double> kReference[] = {
      {DType::kQ8_0, 0.0053524},  {DType::kQ6K, 0.0177105},  {DType::kQ5K, 0.0360529},  {DType::kQ4K, 0.0712715},
      {DType::kQ5_0, 0.0426570},  {DType::kQ4_0, 0.0858537}, {DType::kIQ4NL, 0.0760891}, {DType::kMXFP4, 0.1152113},
      {DType::kFP8, 0.0257171},   {DType::kFP8G32, 0.0239909}};
  const auto checkpoint = Checkpoint::open(test::source_dir() / "models" / "demo");
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  std::map<DType, double> missed;
  double all = 0;
  std::vector<std::byte> source, blocks;
  std::vector<float> x, y;
  size_t layer = 0;
  for (const model::ExpertTensors& e : checkpoint->model().experts) {
    if (layer++ % 4 != 0) continue;  // a quarter of the experts, of all layers
    for (const std::string& name : {e.gate, e.up, e.down}) {
      const SourceTensor& t = checkpoint->tensor(name);
      const auto n = static_cast<int64_t>(t.bytes / 2);
      source.resize(t.bytes), x.resize(static_cast<size_t>(n)), y.resize(x.size());
      ASSERT_TRUE(checkpoint->read(t, 0, source).is_ok());
      ASSERT_TRUE(convert_values(*t.dtype, source.data(), DType::kF32, reinterpret_cast<std::byte*>(x.data()), n));
      for (const float f : x) all += double{f} * f;
      for (const auto& [d, reference] : kReference) {
        blocks.resize(static_cast<size_t>(row_bytes(d, n)));
        ASSERT_TRUE(formats::encode(d, x.data(), n, blocks.data()));
        formats::dequantise(d, blocks.data(), n, y.data());
        for (size_t i = 0; i < x.size(); ++i) missed[d] += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
      }
    }
  }
  for (const auto& [d, reference] : kReference) {
    const double error = std::sqrt(missed[d] / all);
    EXPECT_LE(error, 1.02 * reference) << dtype_name(d);
    EXPECT_GE(error, 0.5 * reference) << dtype_name(d) << ": too good to be true";
    std::printf("%-8s error %.5f, %.3f of the reference\n", std::string(dtype_name(d)).c_str(), error,
                error / reference);
  }
}

}  // namespace
}  // namespace moestro::store
