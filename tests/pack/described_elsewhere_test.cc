// Quantised checkpoints whose quantisation is not described where that of others is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "store/pack/checkpoint.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DescribedElsewhere : public ::testing::Test {
 protected:
  void copy(const std::string& fixture) {
    fs::remove_all(source());
    fs::copy(test::source_dir() / "tests/fixtures" / fixture, source());
  }
  fs::path source() const { return dir_ / "src"; }
  nlohmann::json config() const { return nlohmann::json::parse(testing::read_text(source() / "config.json")); }
  void write(const char* file, const nlohmann::json& json) const {
    testing::write_text(source() / file, json.dump());
  }
  std::string error() const { return Checkpoint::open(source()).status().message(); }
  testing::TemporaryDirectory dir_;
};

constexpr char kWeights[] = "model.safetensors";

/// A matrix of a checkpoint in one file becomes FP8, every number `byte`, with one scale of a block.
void make_fp8(const fs::path& file, const std::string& name, char byte, float scale) {
  const std::string text = testing::read_text(file);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  auto header = nlohmann::json::parse(text.substr(sizeof length, length));
  std::string data = text.substr(sizeof length + length);
  const auto append = [&](const std::string& tensor, const char* dtype, const nlohmann::json& shape,
                          const std::string& bytes) {
    header[tensor] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  };
  const nlohmann::json old = header[name];
  const std::vector<int64_t> shape = old["shape"];
  std::string numbers(static_cast<size_t>(shape[0] * shape[1]), byte), factor(sizeof scale, '\0');
  std::memcpy(factor.data(), &scale, sizeof scale);
  // What was there stays in the file, as another tensor that every model may have.
  header["model.layers.0.self_attn.rotary_emb.inv_freq"] = old;
  append(name, "F8_E4M3", shape, numbers);
  append(name + "_scale_inv", "F32", {1, 1}, factor);
  testing::write_safetensors(file, header.dump(), data);
}

// As Qwen/Qwen3.5-35B-A3B-FP8 has it.
TEST_F(DescribedElsewhere, AtTheTopOfAConfigWithSections) {
  copy("models/qwen3_5_moe_vision");
  const std::string name = "model.language_model.layers.3.self_attn.o_proj.weight";
  make_fp8(source() / kWeights, name, 0x38, 0.25f);  // 1 in e4m3
  EXPECT_THAT(error(), HasSubstr("is F8_E4M3; weights are read from"));
  nlohmann::json with = config();
  with["quantization_config"] = {{"quant_method", "fp8"},
                                 {"fmt", "e4m3"},
                                 {"activation_scheme", "dynamic"},
                                 {"weight_block_size", {128, 128}},
                                 {"modules_to_not_convert", {"lm_head", "model.visual.patch_embed.proj"}}};
  write("config.json", with);
  const auto checkpoint = Checkpoint::open(source());
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensor(name).dtype, DType::kFP8G32);
  ASSERT_TRUE(pack_checkpoint(source(), dir_ / "pack", {}, {}));
  const auto manifest = open_pack(dir_ / "pack");
  ASSERT_TRUE(manifest) << manifest.status().message();
  const auto packed = std::ranges::find(manifest->tensors, "layers.3.attn.o.weight", &PackedTensor::name);
  ASSERT_NE(packed, manifest->tensors.end());
  EXPECT_EQ(packed->dtype, DType::kFP8G32);
}

}  // namespace
}  // namespace moestro::store
