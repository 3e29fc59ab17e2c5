// Checkpoints whose values, scales and zero points are tensors of their own: what is missing, of another shape or not
// supported is named.

#include "store/pack/quantised_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "store/pack/checkpoint.h"
#include "store/pack/packer.h"
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

TEST_F(QuantisedCheckpoint, WithoutItsConfigItsFormatIsNamed) {
  copy("minimax_m2_fp8_tensor");
  replace("config.json", "\"quantization_config\"", "\"auto_map\"");
  EXPECT_THAT(error(), HasSubstr("is F8_E4M3; weights are read from F32, BF16 and F16"));
}

/// Byte `at` of a tensor's data becomes `byte`.
void spoil(const fs::path& file, const std::string& tensor, size_t at, char byte) {
  std::string text = testing::read_text(file);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const size_t offsets = text.find("data_offsets\":[", text.find(tensor + "\""));
  ASSERT_NE(offsets, std::string::npos);
  text[8 + header + std::stoull(text.substr(offsets + 15)) + at] = byte;
  testing::write_text(file, text);
}

TEST_F(QuantisedCheckpoint, ActOrderIsRefusedByName) {
  copy("mixtral_gptq");
  spoil(source() / kFile, "experts.1.w2.g_idx", 4 * 77, 1);
  EXPECT_THAT(error(), HasSubstr("experts.1.w2.g_idx' orders columns by activation (GPTQ with desc_act)"));
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

}  // namespace
}  // namespace moestro::store
