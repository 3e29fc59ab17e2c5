// Checkpoints whose values, scales and zero points are tensors of their own: what is missing, of another shape or not
// supported is named.

#include "store/pack/quantised_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/expert_layout.h"
#include "store/pack/checkpoint.h"
#include "store/pack/convert.h"
#include "store/pack/packer.h"
#include "store/pack/int4_words.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class QuantisedCheckpoint : public ::testing::Test {
 protected:
  void copy(const char* fixture) {
    fs::remove_all(source());
    fs::copy(test::source_dir() / "tests/fixtures/quantised" / fixture, source());
  }
  fs::path source() const { return dir_ / "src"; }
  /// Of the same length, so that the header keeps its own.
  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = testing::read_text(source() / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    testing::write_text(source() / file, text.replace(at, from.size(), to));
  }
  std::string error() {
    const auto packed = pack_checkpoint(source(), dir_ / "pack", {}, {});
    return packed ? "" : packed.status().message();
  }
  testing::TemporaryDirectory dir_;
};

constexpr char kFile[] = "model.safetensors";

TEST_F(QuantisedCheckpoint, ScalesThatAreMissingAreNamed) {
  for (const auto& [fixture, from, to] :
       {std::tuple{"deepseek_v3_fp8", "up_proj.weight_scale_inv", "up_proj.weight_scale_in_"},
        std::tuple{"mixtral_gptq", "w1.scales", "w1.scale_"},
        std::tuple{"qwen3_moe_awq", "up_proj.qzeros", "up_proj.qzero_"},
        std::tuple{"glm4_moe_packed_int4", "up_proj.weight_zero_point", "up_proj.weight_zero_poin_"},
        std::tuple{"qwen3_moe_nvfp4", "up_proj.weight_global_scale", "up_proj.weight_global_scal_"}}) {
    copy(fixture);
    replace(kFile, from, to);
    EXPECT_THAT(error(), HasSubstr(std::string(from) + "' is missing; by quantization_config")) << fixture;
  }
}

// Values and scales may be in different files.
TEST_F(QuantisedCheckpoint, AShardThatIsAbsentIsNamed) {
  copy("qwen3_moe_fp8");
  EXPECT_EQ(error(), "");
  fs::remove_all(dir_ / "pack");
  fs::remove(source() / "model-00002-of-00002.safetensors");
  EXPECT_THAT(error(), HasSubstr("model-00002-of-00002.safetensors"));
  copy("qwen3_moe_fp8");
  fs::resize_file(source() / "model-00001-of-00002.safetensors", 100'000);
  EXPECT_THAT(error(), HasSubstr("the file is truncated"));
}

TEST_F(QuantisedCheckpoint, OtherGroupsThanTheConfigSaysAreNamed) {
  copy("mixtral_gptq");
  replace("config.json", "\"group_size\": 128", "\"group_size\": 64");
  EXPECT_THAT(error(), HasSubstr("qzeros' has shape [1, "));
  copy("qwen3_moe_fp8");
  replace("config.json", "\"weight_block_size\": [\n   128,\n   128\n  ]", "\"weight_block_size\": [64, 64]");
  EXPECT_THAT(error(), HasSubstr("weight_scale_inv' has shape"));
  copy("qwen3_moe_awq");
  replace("config.json", "\"awq\"", "\"hqq\"");
  EXPECT_THAT(error(), HasSubstr("quant_method 'hqq' is not supported"));
}

// 128 columns have as many groups of 96 as of 64, and each number would get some scale. GPTQ may have a g_idx that says
// which.
TEST(QuantisedGroups, ThatDoNotDivideTheColumnsAreRefused) {
  using Method = model::Quantisation::Method;
  for (const Method method : {Method::kAwq, Method::kPackedInt4, Method::kGptq})
    for (const int64_t group : {64, 96}) {
      SourceTensors tensors;
      const auto add = [&](const char* name, const char* format, std::vector<int64_t> shape) {
        tensors["m." + std::string(name)] = {.name = name, .format = format, .dtype = std::nullopt, .shape = shape};
      };
      if (method == Method::kGptq) add("qweight", "I32", {16, 16});
      else add("qweight", "I32", {128, 2});
      add("qzeros", "I32", {2, 2}), add("scales", "F16", {2, 16});
      add("weight_packed", "I32", {16, 16}), add("weight_scale", "F16", {16, 2});
      model::Quantisation quantisation;
      quantisation.method = method;
      quantisation.group = group;
      quantisation.symmetric = true;
      const Status assembled = assemble_matrix(quantisation, "m.weight", {16, 128}, {}, tensors);
      if (group == 64) EXPECT_TRUE(assembled.is_ok()) << assembled.message();
      else EXPECT_THAT(assembled.message(), HasSubstr("groups of 96 do not divide"));
    }
}

TEST_F(QuantisedCheckpoint, WithoutItsConfigItsFormatIsNamed) {
  copy("minimax_m2_fp8_tensor");
  replace("config.json", "\"quantization_config\"", "\"auto_map\"");
  EXPECT_THAT(error(), HasSubstr("is F8_E4M3; weights are read from F32, BF16 and F16"));
}

/// Where a tensor's data begin in the text of its file.
size_t data_of(const std::string& text, const std::string& tensor) {
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const size_t offsets = text.find("data_offsets\":[", text.find(tensor + "\""));
  EXPECT_NE(offsets, std::string::npos) << tensor;
  return 8 + header + std::stoull(text.substr(offsets + 15));
}

/// Byte `at` of a tensor's data becomes `byte`.
void spoil(const fs::path& file, const std::string& tensor, size_t at, char byte) {
  std::string text = testing::read_text(file);
  text[data_of(text, tensor) + at] = byte;
  testing::write_text(file, text);
}

TEST_F(QuantisedCheckpoint, AGroupThatIsNotThereIsNamed) {
  copy("mixtral_gptq");
  spoil(source() / kFile, "experts.1.w2.g_idx", 4 * 77, 1);
  EXPECT_THAT(error(), HasSubstr("experts.1.w2.g_idx' says that column 77 is of group 1; there are 1"));
  spoil(source() / kFile, "experts.1.w2.g_idx", 4 * 77 + 3, static_cast<char>(0x80));
  EXPECT_THAT(error(), HasSubstr("is of group -2147483647;"));
}

/// The column that another one comes from.
int64_t shuffled(int64_t column) { return (column * 37 + 11) % 64; }

/// Columns of a matrix of 64 in GPTQ's form in another order, and the groups that they are of.
void shuffle_columns(std::string& text, const std::string& base, int64_t rows, int64_t group) {
  constexpr int64_t kCols = 64;
  char* words = text.data() + data_of(text, base + ".qweight");
  char* order = text.data() + data_of(text, base + ".g_idx");
  std::vector<uint32_t> old(static_cast<size_t>(rows * kCols / kInWord)), now(old.size());
  std::memcpy(old.data(), words, old.size() * sizeof(uint32_t));
  for (int64_t c = 0; c < kCols; ++c) {
    const int64_t from = shuffled(c);
    for (int64_t r = 0; r < rows; ++r)
      now[static_cast<size_t>(c / kInWord * rows + r)] |=
          (old[static_cast<size_t>(from / kInWord * rows + r)] >> 4 * (from % kInWord) & 15) << 4 * (c % kInWord);
    const auto g = static_cast<int32_t>(from / group);
    std::memcpy(order + 4 * c, &g, sizeof g);
  }
  std::memcpy(words, now.data(), now.size() * sizeof(uint32_t));
}

std::vector<float> numbers_of(const Checkpoint& checkpoint, const std::string& name) {
  const SourceTensor& t = checkpoint.tensor(name);
  std::vector<std::byte> bytes(t.bytes);
  EXPECT_TRUE(checkpoint.read(t, 0, bytes).is_ok());
  std::vector<float> numbers(static_cast<size_t>(t.shape[0] * t.shape[1]));
  EXPECT_TRUE(convert_values(*t.dtype, bytes.data(), DType::kF32, reinterpret_cast<std::byte*>(numbers.data()),
                             std::ssize(numbers)));
  return numbers;
}

// Some files have zeros where columns are in order, which is no index. Where there has to be one, they would give every
// column the first group's scale.
TEST_F(QuantisedCheckpoint, AnOrderThatNobodyFilledInIsThatOfTheColumns) {
  copy("qwen3_moe_gptq_groups_of_32");
  const std::string base = "model.layers.0.mlp.experts.1.up_proj", order = base + ".g_idx";
  const auto before = Checkpoint::open(source());
  ASSERT_TRUE(before) << before.status().message();
  std::string text = testing::read_text(source() / kFile);
  std::memset(text.data() + data_of(text, order), 0, 64 * sizeof(int32_t));
  testing::write_text(source() / kFile, text);
  const auto after = Checkpoint::open(source());
  ASSERT_TRUE(after) << after.status().message();
  EXPECT_EQ(after->tensor(base + ".weight").dtype, before->tensor(base + ".weight").dtype);
  EXPECT_EQ(numbers_of(*after, base + ".weight"), numbers_of(*before, base + ".weight"));
  replace("config.json", "\"static_groups\": true", "\"static_groups\": false");
  EXPECT_THAT(error(), HasSubstr("g_idx' says that 64 columns are of group 0; by group_size it has 32"));
}

// The same numbers in another order of columns, bit by bit.
TEST_F(QuantisedCheckpoint, ActOrderBecomesF32) {
  copy("qwen3_moe_gptq_groups_of_32");
  const auto before = Checkpoint::open(source());
  ASSERT_TRUE(before) << before.status().message();
  const std::string dense = "model.layers.0.self_attn.q_proj";
  std::string text = testing::read_text(source() / kFile);
  std::vector<std::string> bases = {dense};
  for (const model::ExpertTensors& e : before->model().experts)
    for (const std::string& name : {e.gate, e.up, e.down}) bases.push_back(name.substr(0, name.rfind(".weight")));
  std::map<std::string, std::vector<float>> numbers;
  for (const std::string& base : bases) {
    numbers[base] = numbers_of(*before, base + ".weight");
    shuffle_columns(text, base, before->tensor(base + ".weight").shape[0], 32);
  }
  testing::write_text(source() / kFile, text);
  const auto after = Checkpoint::open(source());
  ASSERT_TRUE(after) << after.status().message();
  for (const std::string& base : bases) {
    const SourceTensor& t = after->tensor(base + ".weight");
    ASSERT_EQ(t.shape[1], 64);
    EXPECT_EQ(t.dtype, DType::kF32);
    const std::vector<float>&old = numbers[base], now = numbers_of(*after, base + ".weight");
    for (int64_t r = 0; r < t.shape[0]; ++r)
      for (int64_t c = 0; c < 64; ++c)
        ASSERT_EQ(now[static_cast<size_t>(r * 64 + c)], old[static_cast<size_t>(r * 64 + shuffled(c))])
            << base << " row " << r << " column " << c;
  }
  // In parts: rows and columns from any place on.
  const SourceTensor& t = after->tensor(dense + ".weight");
  const std::vector<float> all = numbers_of(*after, dense + ".weight");
  std::vector<float> part(5 * 29);
  ASSERT_TRUE(after->read_range(t, {3, 5, 13, 29}, std::as_writable_bytes(std::span(part))).is_ok());
  for (size_t r = 0; r < 5; ++r)
    for (size_t c = 0; c < 29; ++c) ASSERT_EQ(part[r * 29 + c], all[(3 + r) * 64 + 13 + c]);
  // Experts in eight times the room only if that is asked for.
  EXPECT_THAT(error(), HasSubstr("mlp.experts.0.gate_proj.weight' has columns ordered by activation (GPTQ with"));
  std::vector<std::string> notes;
  for (const DType d : {DType::kF32, DType::kQ8_0}) {
    fs::remove_all(dir_ / "pack");
    PackOptions options{.experts = {d}};
    if (d == DType::kQ8_0) options.dense = DType::kInt8;
    const auto packed = pack_checkpoint(source(), dir_ / "pack", options,
                                        {.progress = {}, .note = [&](const std::string& n) { notes.push_back(n); }});
    ASSERT_TRUE(packed) << packed.status().message();
  }
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("ordered by activation (GPTQ with desc_act) become f32")));
  // Their numbers were rounded to 4 bits.
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("quantised a second time: experts from 4 bits with columns ordered "
                                                   "by activation to q8_0 (8.5 bits a weight)")));
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("; dense weights to int8 (8.25 bits a weight)")));
  PackOptions mixed{.experts = {DType::kMixed}};
  EXPECT_THAT(pack_checkpoint(source(), dir_ / "other", mixed, {}).status().message(),
              HasSubstr("has columns ordered by activation"));
}

// One expert's columns are in order by chance: a layer's matrices all the same become f32, and its numbers stay.
TEST_F(QuantisedCheckpoint, ActOrderOfAllExpertsButOne) {
  copy("qwen3_moe_gptq_groups_of_32");
  const auto before = Checkpoint::open(source());
  ASSERT_TRUE(before) << before.status().message();
  const std::string in_order = before->model().experts[0].gate;
  std::string text = testing::read_text(source() / kFile);
  for (const model::ExpertTensors& e : before->model().experts)
    for (const std::string& name : {e.gate, e.up})
      if (name != in_order)
        shuffle_columns(text, name.substr(0, name.rfind(".weight")), before->tensor(name).shape[0], 32);
  testing::write_text(source() / kFile, text);
  const auto after = Checkpoint::open(source());
  ASSERT_TRUE(after) << after.status().message();
  constexpr DType kWide = DType::kF32, kOwn = DType::kInt4G32;
  ASSERT_EQ(after->expert_formats().size(), 1u);
  EXPECT_EQ(after->expert_formats()[0], ExpertFormats(kWide, kWide, kOwn)) << "down is in order in all experts";
  EXPECT_EQ(numbers_of(*after, in_order), numbers_of(*before, in_order));
  // In parts: columns from any place on.
  const SourceTensor& t = after->tensor(in_order);
  const std::vector<float> all = numbers_of(*before, in_order);
  std::vector<float> part(5 * 29);
  ASSERT_TRUE(after->read_range(t, {3, 5, 13, 29}, std::as_writable_bytes(std::span(part))).is_ok());
  for (size_t r = 0; r < 5; ++r)
    for (size_t c = 0; c < 29; ++c) ASSERT_EQ(part[r * 29 + c], all[(3 + r) * 64 + 13 + c]);
  EXPECT_THAT(error(), HasSubstr("mlp.experts.0.up_proj.weight' has columns ordered by activation"));
  for (const DType d : {kWide, DType::kQ8_0}) {
    fs::remove_all(dir_ / "pack");
    const auto packed = pack_checkpoint(source(), dir_ / "pack", {.experts = {d}}, {});
    EXPECT_TRUE(packed) << packed.status().message();
  }
}

TEST_F(QuantisedCheckpoint, AMatrixThatIsThereInTwoFormsIsNamed) {
  copy("mixtral_gptq");
  std::string text = testing::read_text(source() / kFile);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const std::string from = "experts.1.w1.bias\"", to = "experts.1.w1.weight\"";
  text.replace(text.find(from), from.size(), to);
  header += to.size() - from.size();
  std::memcpy(text.data(), &header, sizeof header);
  testing::write_text(source() / kFile, text);
  EXPECT_THAT(error(), HasSubstr("experts.1.w1.weight' and its quantised form, "));
  EXPECT_THAT(error(), HasSubstr("experts.1.w1.qweight', are there; remove one"));
}

// The other version's zero points would put each number off by its scale. With sym, both are read as the 8 they mean.
TEST_F(QuantisedCheckpoint, ZeroPointsOfASymmetricModelMayBeOfEitherVersion) {
  const std::string v1 = "\"damp_percent\": 0.1,", v2 = "\"checkpoint_format\": \"gptq_v2\",";
  const std::string base = "model.layers.0.block_sparse_moe.experts.1.w2";
  const auto numbers = [&] {
    const auto checkpoint = Checkpoint::open(source());
    EXPECT_TRUE(checkpoint) << checkpoint.status().message();
    return numbers_of(*checkpoint, base + ".weight");
  };
  const auto store_zeros = [&](char byte) {
    std::string text = testing::read_text(source() / kFile);
    const size_t begin = data_of(text, "experts.0.w1.g_idx");  // the first of the file
    const auto header = nlohmann::json::parse(text.substr(8, begin - 8));
    for (const auto& [name, tensor] : header.items())
      if (name.ends_with(".qzeros"))
        for (auto at = tensor["data_offsets"][0].get<size_t>(); at < tensor["data_offsets"][1]; ++at)
          text[begin + at] = byte;
    testing::write_text(source() / kFile, text);
  };
  copy("mixtral_gptq");
  const std::vector<float> wanted = numbers();
  store_zeros(static_cast<char>(0x88));
  EXPECT_EQ(numbers(), wanted);
  replace("config.json", v1, v2);
  EXPECT_EQ(numbers(), wanted);
  store_zeros(0x77);
  EXPECT_EQ(numbers(), wanted);
  // Without sym they are what the version says.
  replace("config.json", "\"sym\": true", "\"sym\": false");
  EXPECT_NE(numbers(), wanted);
  for (const int other : {0x76, 0x88}) {
    copy("mixtral_gptq");
    spoil(source() / kFile, "experts.1.w2.qzeros", 9, static_cast<char>(other));
    EXPECT_THAT(error(), HasSubstr("experts.1.w2.qzeros' holds zero points that differ, but quantization_config says "
                                   "sym true; if the"));
  }
  replace("config.json", "\"sym\": true", "\"sym\": false");
  EXPECT_EQ(error(), "");
}

// What the numbers were before they were packed, eight a word.
TEST_F(QuantisedCheckpoint, AFalseShapeIsNamed) {
  copy("glm4_moe_packed_int4");
  spoil(source() / kFile, "experts.1.up_proj.weight_shape", 8, 60);
  EXPECT_THAT(error(), HasSubstr("experts.1.up_proj.weight_shape' says [32, 60]; by config.json "));
  EXPECT_THAT(error(), HasSubstr("up_proj.weight' is [32, 64]: the checkpoint is damaged or of another model"));
}

// Without it, nothing says that columns are in order.
TEST_F(QuantisedCheckpoint, WithDescActTheOrderOfColumnsIsNeeded) {
  copy("mixtral_gptq");
  replace("config.json", "\"desc_act\": false", "\"desc_act\": true");
  EXPECT_EQ(error(), "");
  fs::remove_all(dir_ / "pack");
  replace(kFile, "experts.1.w2.g_idx", "experts.1.w2.g_id_");
  EXPECT_THAT(error(), HasSubstr("experts.1.w2.g_idx' is missing; by quantization_config"));
}

TEST_F(QuantisedCheckpoint, NumbersThatAreNotFiniteAreNamed) {
  copy("qwen3_moe_fp8");
  spoil(source() / "model-00001-of-00002.safetensors", "experts.1.up_proj.weight", 128 * 5 + 3, 0x7f);
  EXPECT_THAT(error(), HasSubstr("experts.1.up_proj.weight' is infinite or not a number at block 5"));
  copy("mixtral_gptq");
  spoil(source() / kFile, "experts.0.w3.scales", 2 * 9 + 1, 0x7c);
  EXPECT_THAT(error(), HasSubstr("experts.0.w3.weight' is infinite or not a number at block 9"));
}

// The block is counted in the whole matrix, also where a part of each row is read.
TEST_F(QuantisedCheckpoint, InAPartOfEachRowTheBlockIsNamed) {
  copy("qwen3_moe_gptq_groups_of_32");
  constexpr int64_t kRows = 64, kRow = 9, kGroup = 1;
  spoil(source() / kFile, "layers.0.mlp.experts.1.up_proj.scales", 2 * (kGroup * kRows + kRow) + 1, 0x7c);
  const auto checkpoint = Checkpoint::open(source());
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  const SourceTensor& tensor = checkpoint->tensor("model.layers.0.mlp.experts.1.up_proj.weight");
  std::vector<std::byte> out(8 * static_cast<size_t>(block_shape(*tensor.dtype).bytes));
  EXPECT_THAT(checkpoint->read_range(tensor, {4, 8, 32, 32}, out).message(), HasSubstr("at block 19;"));
  EXPECT_TRUE(checkpoint->read_range(tensor, {4, 8, 0, 32}, out).is_ok());
}

// In runs of any length from any block on: the same bytes.
TEST_F(QuantisedCheckpoint, AreReadInAnyPieces) {
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "tests/fixtures/quantised")) {
    const auto checkpoint = Checkpoint::open(entry.path());
    ASSERT_TRUE(checkpoint) << checkpoint.status().message();
    const SourceTensor& tensor = checkpoint->tensor(checkpoint->model().experts[1].down);
    ASSERT_TRUE(tensor.matrix) << entry.path();
    std::vector<std::byte> whole(tensor.bytes), piece;
    ASSERT_TRUE(checkpoint->read(tensor, 0, whole).is_ok());
    const auto block = static_cast<size_t>(block_shape(*tensor.dtype).bytes);
    for (const size_t blocks : {size_t{1}, size_t{3}, size_t{7}, size_t{100}})
      for (size_t at = 0; at < whole.size(); at += piece.size()) {
        piece.resize(std::min(blocks * block, whole.size() - at));
        ASSERT_TRUE(checkpoint->read(tensor, at, piece).is_ok());
        ASSERT_EQ(std::memcmp(piece.data(), whole.data() + at, piece.size()), 0) << entry.path() << ", byte " << at;
      }
  }
}

// Dense matrices are read in bands of many rows, or row by row where there is no memory: the same bytes.
TEST_F(QuantisedCheckpoint, DenseMatricesAreTheSameWithAnyMemory) {
  for (const char* fixture : {"qwen3_moe_awq", "qwen3_moe_gptq_groups_of_32", "mixtral_gptq"})
    for (const std::optional<DType> dense : {std::optional<DType>(), std::optional(DType::kBF16),
                                             std::optional(DType::kInt8), std::optional(DType::kBF16In12)}) {
      copy(fixture);
      std::map<std::string, std::string> first;
      for (const uint64_t scratch : {uint64_t{1}, uint64_t{100} << 10, uint64_t{64} << 20}) {
        fs::remove_all(dir_ / "pack");
        const auto packed = pack_checkpoint(source(), dir_ / "pack",
                                            {.dense = dense, .model_name = "m", .scratch_bytes_max = scratch}, {});
        ASSERT_TRUE(packed) << fixture << ": " << packed.status().message();
        const auto bytes = testing::read_directory(dir_ / "pack");
        if (first.empty()) first = bytes;
        EXPECT_EQ(bytes, first) << fixture << " with " << scratch;
      }
    }
}

}  // namespace
}  // namespace moestro::store
