#include "store/pack/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/pack/packer.h"
#include "store/pack/weight_files.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using testing::CheckpointOptions;
using testing::read_text;
using testing::write_checkpoint;
using testing::write_text;

class CheckpointTest : public ::testing::Test {
 protected:
  /// Opening fails and says `says`, and packing writes nothing at all.
  void expect_refused(Code code, const std::string& says) {
    const Status status = Checkpoint::open(dir_.path()).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(says));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    const testing::TemporaryDirectory out;
    EXPECT_FALSE(pack_checkpoint(dir_.path(), out / "pack", {}, {}));
    EXPECT_FALSE(std::filesystem::exists(out / "pack"));
  }

  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read_text(dir_ / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size()) << "the header's length stays";
    write_text(dir_ / file, text.replace(at, from.size(), to));
  }

  testing::TemporaryDirectory dir_;
};

TEST_F(CheckpointTest, OneFileOrManyAreTheSame) {
  write_checkpoint(dir_.path(), {.shards = 3});
  const auto sharded = Checkpoint::open(dir_.path());
  ASSERT_TRUE(sharded) << sharded.status().message();
  EXPECT_EQ(sharded->own_dense_dtype().dtype, DType::kBF16);
  const SourceTensor& t = sharded->tensor("model.layers.1.mlp.experts.2.down_proj.weight");
  std::vector<std::byte> bytes(4);
  EXPECT_TRUE(sharded->read(t, 2, bytes).is_ok());
}

TEST_F(CheckpointTest, ItsOwnFormatIsTheNarrowestThatHoldsAllExactly) {
  const auto own = [&](DType dtype, std::map<std::string, DType> others) {
    write_checkpoint(dir_.path(), {.dtype = dtype, .other_dtypes = std::move(others)});
    const auto c = Checkpoint::open(dir_.path());
    EXPECT_TRUE(c) << c.status().message();
    return std::tuple(c->own_dense_dtype().dtype, c->own_dense_dtype().widened, c->own_expert_dtype().dtype,
                      c->own_expert_dtype().widened);
  };
  constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;
  const std::string router = "model.layers.0.mlp.gate.weight", expert = "model.layers.0.mlp.experts.1.up_proj.weight";
  for (const DType d : {kF32, kBF16, kF16}) EXPECT_EQ(own(d, {}), std::tuple(d, false, d, false));
  EXPECT_EQ(own(kF16, {{router, kF32}}), std::tuple(kF32, true, kF16, false));
  EXPECT_EQ(own(kF16, {{router, kBF16}}), std::tuple(kF32, true, kF16, false));
  EXPECT_EQ(own(kBF16, {{expert, kF32}}), std::tuple(kBF16, false, kF32, true));
  EXPECT_EQ(own(kF32, {{router, kF16}}), std::tuple(kF32, false, kF32, false));
}

TEST_F(CheckpointTest, AHeadThatIsTheEmbeddingIsLeftOut) {
  const auto same = [](const std::string& name, int64_t i) {
    return testing::synthetic_value(name == "lm_head.weight" ? "model.embed_tokens.weight" : name, i) / 16384.0f;
  };
  CheckpointOptions options{.tied = true, .extra = {{"lm_head.weight", {40, 72}}}, .value = same};
  write_checkpoint(dir_.path(), options);
  EXPECT_TRUE(Checkpoint::open(dir_.path())) << Checkpoint::open(dir_.path()).status().message();
  options.value = [](const std::string& name, int64_t i) {
    return name == "lm_head.weight" || name.ends_with("tokens.weight") ? static_cast<float>(i % 64) : 0.5f;
  };
  options.other_dtypes = {{"lm_head.weight", DType::kF32}};
  write_checkpoint(dir_.path(), options);
  const auto formats = Checkpoint::open(dir_.path());
  ASSERT_TRUE(formats) << formats.status().message();
  EXPECT_EQ(formats->own_dense_dtype().dtype, DType::kBF16) << "what is left out does not count";
}

TEST_F(CheckpointTest, AHeadThatDiffersFromATiedEmbedding) {
  CheckpointOptions options{.tied = true, .extra = {{"lm_head.weight", {40, 72}}}};
  options.value = [](const std::string& name, int64_t i) {
    return name == "lm_head.weight" && i == 40 * 72 - 1 ? 0.75f : 0.5f;
  };
  write_checkpoint(dir_.path(), options);
  expect_refused(
      Code::kInvalidArgument,
      "'lm_head.weight' has other values than 'model.embed_tokens.weight'; set tie_word_embeddings to false");
  options.config = R"({"tie_word_embeddings": false})";
  options.extra = {};
  write_checkpoint(dir_.path(), options);
  EXPECT_TRUE(Checkpoint::open(dir_.path())) << "untied, it is the head";
  write_checkpoint(dir_.path(), {.tied = true, .extra = {{"lm_head.weight", {40, 71}}}});
  expect_refused(Code::kInvalidArgument, "'lm_head.weight' has shape [40, 71]");
}

TEST_F(CheckpointTest, CopiesOfAnEncodersEmbeddingMustBeEqual) {
  const auto fixture = test::source_dir() / "tests/fixtures/models/nllb_moe_bias";
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(fixture / file, dir_ / file);
  const auto equal = Checkpoint::open(dir_.path());
  ASSERT_TRUE(equal) << equal.status().message();
  const SourceTensor& copy = equal->tensor("model.decoder.embed_tokens.weight");
  std::string bytes = read_text(dir_ / "model.safetensors");
  bytes[copy.offset + 5] ^= 1;
  write_text(dir_ / "model.safetensors", bytes);
  expect_refused(Code::kInvalidArgument, "'model.decoder.embed_tokens.weight' has other values than "
                                         "'model.shared.weight'; stacks with embeddings of their own");
}

TEST_F(CheckpointTest, NoDirectoryNoConfigNoWeights) {
  EXPECT_EQ(Checkpoint::open(dir_ / "absent").status().code(), Code::kNotFound);
  EXPECT_THAT(Checkpoint::open(dir_.path()).status().message(), HasSubstr("config.json"));
  write_text(dir_ / "config.json", testing::synthetic_config({}));
  expect_refused(Code::kNotFound, "neither model.safetensors nor");
}

// Older versions of AutoGPTQ put group and bits into the name, and say it in config.json.
TEST_F(CheckpointTest, WeightsOfAnotherName) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    std::filesystem::rename(dir_ / from, dir_ / to);
  };
  const auto opened = [&] {
    const auto c = Checkpoint::open(dir_.path());
    EXPECT_TRUE(c) << c.status().message();
    return c ? c->remarks() : std::vector<std::string>();
  };
  write_checkpoint(dir_.path(), {});
  EXPECT_THAT(opened(), ::testing::IsEmpty());
  rename("model.safetensors", "gptq_model-4bit-128g.safetensors");
  EXPECT_THAT(opened(), ::testing::ElementsAre("the weights are those of gptq_model-4bit-128g.safetensors"));
  write_text(dir_ / "b.safetensors", "");
  expect_refused(Code::kNotFound, "neither model.safetensors nor model.safetensors.index.json is there, but "
                                  "b.safetensors and gptq_model-4bit-128g.safetensors are; rename the one that is "
                                  "meant to model.safetensors");
  for (const char* name : {"null", R"("")", R"("../b")", "1"}) {
    write_text(dir_ / "config.json", testing::synthetic_config({.config = std::string(R"({"quantization_config":
        {"quant_method": "gptq", "bits": 4, "model_file_base_name": )") + name + "}}"}));
    expect_refused(Code::kNotFound, "neither model.safetensors nor");
  }
  write_text(dir_ / "config.json", testing::synthetic_config({.config = R"({"quantization_config":
      {"quant_method": "gptq", "bits": 4, "model_file_base_name": "gptq_model-4bit-128g"}})"}));
  EXPECT_THAT(opened(), ::testing::ElementsAre("the weights are those of gptq_model-4bit-128g.safetensors"));
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeListedIsNotOneWithoutWeights) {
  const Status status = find_weight_files(dir_ / "absent", "{}").status();
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_THAT(status.message(), HasSubstr("absent: cannot be listed"));
}

TEST_F(CheckpointTest, AnIndexOfAnotherName) {
  write_checkpoint(dir_.path(), {.shards = 2});
  std::filesystem::rename(dir_ / "model.safetensors.index.json", dir_ / "gptq_model.safetensors.index.json");
  const auto c = Checkpoint::open(dir_.path());
  ASSERT_TRUE(c) << c.status().message();
  EXPECT_THAT(c->remarks(), ::testing::ElementsAre("the weights are those of gptq_model.safetensors.index.json"));
  write_text(dir_ / "a.safetensors.index.json", "{}");
  expect_refused(Code::kNotFound, "but a.safetensors.index.json and gptq_model.safetensors.index.json are; rename the "
                                  "one that is meant to model.safetensors.index.json");
  std::filesystem::remove(dir_ / "a.safetensors.index.json");
  std::filesystem::remove(dir_ / "gptq_model.safetensors.index.json");
  std::filesystem::remove(dir_ / "part-1.safetensors");
  std::filesystem::rename(dir_ / "part-0.safetensors", dir_ / "model-00001-of-00002.safetensors");
  expect_refused(Code::kNotFound, "but model-00001-of-00002.safetensors is; download the index, which lists all parts");
  write_text(dir_ / "model-00002-of-00002.safetensors", "");
  expect_refused(Code::kNotFound, "and model-00002-of-00002.safetensors are; download the index");
}

TEST_F(CheckpointTest, TruncatedFile) {
  write_checkpoint(dir_.path(), {});
  std::filesystem::resize_file(dir_ / "model.safetensors", std::filesystem::file_size(dir_ / "model.safetensors") - 1);
  expect_refused(Code::kInvalidArgument, "truncated");
}

TEST_F(CheckpointTest, MissingTensor) {
  write_checkpoint(dir_.path(), {});
  replace("model.safetensors", "\"model.norm.weight\"", "\"model.nor.weightt\"");
  expect_refused(Code::kInvalidArgument, "'model.norm.weight' is missing");
}

TEST_F(CheckpointTest, ShapeOtherThanConfigSays) {
  write_checkpoint(dir_.path(), {});
  replace("config.json", "\"vocab_size\":40", "\"vocab_size\":39");
  expect_refused(Code::kInvalidArgument, "has shape [40, 72]; by config.json it is [39, 72]");
}

TEST_F(CheckpointTest, FormatThatHoldsNoWeights) {
  write_checkpoint(dir_.path(), {});
  std::string text = read_text(dir_ / "model.safetensors");
  const size_t at = text.find("BF16", text.find("\"lm_head.weight\""));
  write_text(dir_ / "model.safetensors", text.replace(at, 4, "I16\""));  // breaks the JSON
  expect_refused(Code::kInvalidArgument, "not valid JSON");
  text = read_text(dir_ / "model.safetensors");
  write_text(dir_ / "model.safetensors", text.replace(at - 1, 6, " \"I16\""));
  expect_refused(Code::kUnsupported, "'lm_head.weight' is I16");
}

TEST_F(CheckpointTest, TensorThatIsNoPartOfTheModel) {
  write_checkpoint(dir_.path(), {});
  replace("config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":1");
  expect_refused(Code::kUnsupported, "'model.layers.1.input_layernorm.weight' is no part of Qwen2MoeForCausalLM");
}

/// GLM-4.5's last layer is for speculation.
TEST_F(CheckpointTest, LayersThatPredictFurtherTokensAreLeftOut) {
  const CheckpointOptions glm{.architecture = "Glm4MoeForCausalLM",
                              .extra = {{"model.layers.2.eh_proj.weight", {72, 144}}}};
  write_checkpoint(dir_.path(), glm);
  const testing::TemporaryDirectory out;
  std::vector<std::string> notes;
  const PackObserver observer{nullptr, [&](const std::string& line) { notes.push_back(line); }};
  const auto packed = pack_checkpoint(dir_.path(), out / "pack", {}, observer);
  ASSERT_TRUE(packed) << packed.status().message();
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("which predict further tokens, are left out")));
  CheckpointOptions beyond = glm;
  beyond.extra = {{"model.layers.3.eh_proj.weight", {72, 144}}};
  write_checkpoint(dir_.path(), beyond);
  expect_refused(Code::kUnsupported, "'model.layers.3.eh_proj.weight' is no part of Glm4MoeForCausalLM");
}

/// Rounded to bf16, a bias of many near 10 would be the same for all experts.
TEST_F(CheckpointTest, ABiasForTheChoiceStaysExactWhateverTheOthersAre) {
  const std::string bias = "model.layers.0.mlp.gate.e_score_correction_bias";
  write_checkpoint(dir_.path(), {.architecture = "Glm4MoeForCausalLM",
                                 .other_dtypes = {{bias, DType::kF32},
                                                  {"model.layers.1.mlp.gate.e_score_correction_bias", DType::kF32}}});
  const auto opened = Checkpoint::open(dir_.path());
  ASSERT_TRUE(opened) << opened.status().message();
  EXPECT_EQ(opened->own_dense_dtype().dtype, DType::kBF16);
  EXPECT_FALSE(opened->own_dense_dtype().widened);
  const testing::TemporaryDirectory out;
  ASSERT_TRUE(pack_checkpoint(dir_.path(), out / "pack", {.dense = DType::kInt8}, {}));
  const auto manifest = open_pack(out / "pack");
  ASSERT_TRUE(manifest) << manifest.status().message();
  const auto found = std::ranges::find(manifest->tensors, "layers.0.router.bias", &PackedTensor::name);
  ASSERT_NE(found, manifest->tensors.end());
  EXPECT_EQ(found->dtype, DType::kF32);
}

TEST_F(CheckpointTest, FusedExperts) {
  write_checkpoint(dir_.path(), {});
  replace("model.safetensors", ".mlp.experts.0.down_proj.weight\"", ".mlp.experts.gate_up_proj.xxxxx\"");
  expect_refused(Code::kUnsupported, "fused experts are not supported");
}

TEST_F(CheckpointTest, IndexThatPointsElsewhere) {
  write_checkpoint(dir_.path(), {.shards = 2});
  const std::string good = read_text(dir_ / "model.safetensors.index.json");
  for (const char* name : {"../../../secrets.bin", "/etc/passwd", "..", "a\\\\b", "", "sub/part-0.safetensors"}) {
    std::string text = good;
    const std::string file = "part-1.safetensors";
    write_text(dir_ / "model.safetensors.index.json", text.replace(text.find(file), file.size(), name));
    expect_refused(Code::kInvalidArgument, "is not a file name in this directory");
  }
}

TEST_F(CheckpointTest, PartsMayHaveNamesOfAnyLetters) {
  write_checkpoint(dir_.path(), {.shards = 2});
  const std::string before = "part-1.safetensors", name = "m\u00f6del part 1.safetensors";
  std::filesystem::rename(dir_ / before, dir_ / name);
  std::string index = read_text(dir_ / "model.safetensors.index.json");
  for (size_t at = index.find(before); at != std::string::npos; at = index.find(before, at))
    index.replace(at, before.size(), name);
  write_text(dir_ / "model.safetensors.index.json", index);
  const auto opened = Checkpoint::open(dir_.path());
  EXPECT_TRUE(opened) << opened.status().message();
}

TEST_F(CheckpointTest, IndexThatLies) {
  write_checkpoint(dir_.path(), {.shards = 2});
  const std::string good = read_text(dir_ / "model.safetensors.index.json");
  write_text(dir_ / "model.safetensors.index.json", "{}");
  expect_refused(Code::kInvalidArgument, "has no weight_map");
  write_text(dir_ / "model.safetensors.index.json", R"({"weight_map": {"a": 3}})");
  expect_refused(Code::kInvalidArgument, "names no file for 'a'");
  write_text(dir_ / "model.safetensors.index.json", good.substr(0, good.size() / 2));
  expect_refused(Code::kInvalidArgument, "not valid JSON");
  write_text(dir_ / "model.safetensors.index.json", good);
  std::string swapped = good;
  const std::string entry = "\"lm_head.weight\":\"part-";
  char& number = swapped[swapped.find(entry) + entry.size()];
  number = number == '0' ? '1' : '0';
  write_text(dir_ / "model.safetensors.index.json", swapped);
  expect_refused(Code::kInvalidArgument, "'lm_head.weight' is not in part-");
  write_text(dir_ / "model.safetensors.index.json", good);
  std::filesystem::remove(dir_ / "part-1.safetensors");
  expect_refused(Code::kNotFound, "part-1.safetensors");
}

TEST_F(CheckpointTest, TensorInTwoFiles) {
  write_checkpoint(dir_.path(), {.shards = 2});
  const std::string one = read_text(dir_ / "part-0.safetensors");
  write_text(dir_ / "part-1.safetensors", one);
  expect_refused(Code::kInvalidArgument, "is also in another file");
}

TEST_F(CheckpointTest, FingerprintFollowsTheSource) {
  write_checkpoint(dir_.path(), {});
  const uint64_t before = Checkpoint::open(dir_.path())->fingerprint();
  EXPECT_EQ(Checkpoint::open(dir_.path())->fingerprint(), before);
  write_text(dir_ / "generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_NE(Checkpoint::open(dir_.path())->fingerprint(), before);
}

}  // namespace
}  // namespace moestro::store
