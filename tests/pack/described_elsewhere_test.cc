// Quantised checkpoints whose quantisation is not described where that of others is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
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
  /// The files of a pack of it but those that hold config.json.
  std::map<std::string, std::string> packed() {
    fs::remove_all(dir_ / "pack");
    notes_.clear();
    const auto summary = pack_checkpoint(source(), dir_ / "pack", {},
                                         {{}, [&](const std::string& line) { notes_.push_back(line); }});
    EXPECT_TRUE(summary) << summary.status().message();
    auto files = testing::read_directory(dir_ / "pack");
    for (const char* name : {"config.json", "manifest"}) EXPECT_EQ(files.erase(name), 1u);
    return files;
  }
  /// The same of a fixture whose config.json says nothing, and `file` what `says` does.
  void expect_the_same(const std::string& fixture, const char* file, const char* says) {
    copy("quantised/" + fixture);
    const auto whole = packed();
    EXPECT_THAT(notes_, ::testing::Not(::testing::Contains(HasSubstr("quantisation")))) << fixture;
    nlohmann::json plain = config();
    plain.erase("quantization_config");
    write("config.json", plain);
    EXPECT_NE(error(), "") << "without it, tensors are not what they seem";
    testing::write_text(source() / file, says);
    EXPECT_EQ(packed(), whole) << fixture;
    EXPECT_THAT(notes_, ::testing::Contains("config.json says nothing of quantisation; what " + std::string(file) +
                                            " says is used"));
    EXPECT_EQ(testing::read_text(dir_ / "pack" / "config.json"), plain.dump()) << "copied as it is";
  }
  testing::TemporaryDirectory dir_;
  std::vector<std::string> notes_;
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

TEST_F(DescribedElsewhere, InAFileOfGptq) {
  expect_the_same("mixtral_gptq", "quantize_config.json", R"({"bits": 4, "group_size": 128, "damp_percent": 0.01,
      "desc_act": false, "static_groups": false, "sym": true, "true_sequential": true, "model_name_or_path": "x",
      "model_file_base_name": "gptq_model-4bit-128g"})");
  const auto whole = packed();
  fs::rename(source() / kWeights, source() / "gptq_model-4bit-128g.safetensors");
  testing::write_text(source() / "another.safetensors", "");
  EXPECT_EQ(packed(), whole) << "it names the file, too";
}

TEST_F(DescribedElsewhere, InAFileOfAwq) {
  expect_the_same("qwen3_moe_awq", "quant_config.json", R"({"zero_point": true, "q_group_size": 64, "w_bit": 4,
      "version": "GEMM", "modules_to_not_convert": null})");
}

TEST_F(DescribedElsewhere, InAFileOfModelOpt) {
  expect_the_same("qwen3_moe_modelopt", "hf_quant_config.json", R"({"producer": {"name": "modelopt", "version":
      "0.29.0"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
      "exclude_modules": ["lm_head"]}})");
}

// Its scales are as those of "fp8", under another name.
TEST_F(DescribedElsewhere, ModelOptFp8) {
  copy("quantised/minimax_m2_fp8_tensor");
  const auto whole = packed();
  std::string text = testing::read_text(source() / kWeights);
  const std::string from = ".weight_scale_inv\"", to = ".weight_scale\"    ";
  ASSERT_EQ(from.size(), to.size());
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
  testing::write_text(source() / kWeights, text);
  nlohmann::json with = config();
  with.erase("quantization_config");
  write("config.json", with);
  const nlohmann::json says = {{"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}, {"exclude_modules", {"lm_head"}}};
  write("hf_quant_config.json", {{"quantization", says}});
  EXPECT_EQ(packed(), whole);
  with["quantization_config"] = says;
  with["quantization_config"]["quant_method"] = "modelopt";
  write("config.json", with);
  fs::remove(source() / "hf_quant_config.json");
  EXPECT_EQ(packed(), whole) << "or in config.json";
}

TEST_F(DescribedElsewhere, WhatIsNotSupportedIsNamed) {
  const auto refused = [&](const char* file, const char* says) {
    testing::write_checkpoint(source(), {});
    testing::write_text(source() / file, says);
    const std::string message = error();
    fs::remove(source() / file);
    return message;
  };
  EXPECT_THAT(refused("quantize_config.json", R"({"bits": 8})"),
              HasSubstr("(with quantize_config.json as quantization_config): config.json: quantization_config: bits 8 "
                        "is not supported (4 is)"));
  EXPECT_THAT(refused("quantize_config.json", R"({"bits": 4, "new_setting": 1})"), HasSubstr("'new_setting'"));
  EXPECT_THAT(refused("quantize_config.json", R"({"quant_method": "hqq"})"), HasSubstr("quant_method 'hqq' is not"));
  EXPECT_THAT(refused("quantize_config.json", "{"), HasSubstr("quantize_config.json: not valid JSON"));
  EXPECT_THAT(refused("quant_config.json", R"({"w_bit": 4, "bits": 4})"), HasSubstr("'w_bit'"));
  EXPECT_THAT(refused("quant_config.json", R"({"w_bit": 4, "version": "gemv"})"), HasSubstr("version 'gemv' is not"));
  EXPECT_THAT(refused("hf_quant_config.json", R"({"quantization": {"quant_algo": "W4A8_AWQ"}})"),
              HasSubstr("quant_algo 'W4A8_AWQ' is not supported (NVFP4 and FP8 are)"));
  EXPECT_THAT(refused("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8", "group_size": 128}})"),
              HasSubstr("group_size is not supported with FP8"));
  for (const char* says : {"{}", R"({"quantization": 1})"})
    EXPECT_THAT(refused("hf_quant_config.json", says), HasSubstr("quantization is missing or no object"));
  testing::write_text(source() / "quant_config.json", R"({"w_bit": 4})");
  EXPECT_THAT(refused("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})"),
              HasSubstr("hf_quant_config.json: quant_config.json describes the quantisation too; remove the wrong"));
  fs::remove(source() / "quant_config.json");
  EXPECT_EQ(refused("hf_quant_config.json", R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})"),
            "") << "only a cache is quantised";
}

TEST_F(DescribedElsewhere, WhatConfigJsonSaysComesFirst) {
  copy("quantised/mixtral_gptq");
  testing::write_text(source() / "quant_config.json", R"({"w_bit": 8})");
  EXPECT_EQ(error(), "");
}

TEST_F(DescribedElsewhere, TheFingerprintFollowsIt) {
  testing::write_checkpoint(source(), {});
  const uint64_t before = Checkpoint::open(source())->fingerprint();
  testing::write_text(source() / "quant_config.json", R"({"w_bit": 4})");
  EXPECT_NE(Checkpoint::open(source())->fingerprint(), before);
}

}  // namespace
}  // namespace moestro::store
