// Packs of GGUF files: what is in them, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/model/model_spec.h"
#include "store/pack/checkpoint.h"
#include "store/pack/gguf_config.h"
#include "store/pack/gguf_tokenizer.h"
#include "store/pack/packer.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using namespace std::string_literals;

fs::path fixture(const std::string& name) { return test::source_dir() / "tests/fixtures/gguf" / name; }
fs::path file_of(const std::string& name) { return fixture(name) / (name + ".gguf"); }

class GgufPack : public ::testing::Test {
 protected:
  Status pack(const fs::path& source, const PackOptions& options = {}) {
    return pack_checkpoint(source, dir_ / "pack", options, {}).status();
  }
  Manifest packed(const fs::path& source, const PackOptions& options = {}) {
    const Status done = pack(source, options);
    EXPECT_TRUE(done.is_ok()) << done.message();
    auto manifest = open_pack(dir_ / "pack");
    EXPECT_TRUE(manifest) << manifest.status().message();
    return manifest ? std::move(*manifest) : Manifest();
  }
  /// A copy of a fixture with `from` replaced by `to`, which is as long.
  fs::path edited(const std::string& name, const std::string& from, const std::string& to, bool last = false) {
    std::string bytes = testing::read_text(file_of(name));
    const size_t at = last ? bytes.rfind(from) : bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    bytes.replace(at, from.size(), to);
    testing::write_text(dir_ / "edited.gguf", bytes);
    return dir_ / "edited.gguf";
  }
  void expect_refused(const fs::path& source, const std::string& says) {
    const Status refused = pack(source);
    EXPECT_FALSE(refused.is_ok()) << says;
    EXPECT_THAT(refused.message(), HasSubstr(says));
    EXPECT_EQ(refused.message().find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(dir_ / "pack"));
  }
  testing::TemporaryDirectory dir_;
};

TEST_F(GgufPack, KeepsEveryFormat) {
  const Manifest m = packed(file_of("qwen3moe_k_quants"));
  EXPECT_EQ(m.model_name, "qwen3moe_k_quants");
  ASSERT_EQ(m.expert_precisions, std::vector{DType::kMixed});
  ASSERT_EQ(m.expert_formats.size(), 1u);
  EXPECT_EQ(m.expert_formats[0], ExpertFormats(DType::kQ4K, DType::kQ4K, DType::kQ5K));
  std::map<std::string, DType> formats;
  for (const PackedTensor& t : m.tensors) formats[t.name] = t.dtype;
  EXPECT_EQ(formats["embed.weight"], DType::kQ6K);
  EXPECT_EQ(formats["layers.0.attn.o.weight"], DType::kQ8_0);
  EXPECT_EQ(formats["layers.0.input_norm.weight"], DType::kF32);
  // Four and a half bits a weight stay four and a half: 2 * 256 * 256 * 4.5 + 256 * 256 * 5.5 bits, and padding.
  for (const Blob& b : m.blobs)
    if (b.kind == BlobKind::kExpert) EXPECT_LT(b.length, 128u * 1024);
  const auto checked = verify_pack(dir_ / "pack", m, 1, {});
  ASSERT_TRUE(checked) << checked.status().message();
  EXPECT_TRUE(checked->first_error.is_ok()) << checked->first_error.message();
}

TEST_F(GgufPack, HasOnePrecisionWhereAllMatricesAgree) {
  const Manifest m = packed(file_of("dots1_q8_0"));
  EXPECT_EQ(m.expert_precisions, std::vector{DType::kQ8_0});
  EXPECT_TRUE(m.expert_formats.empty());
}

// The fixture of the tokenizer's own tests has them from the published tokenizer.json.
TEST_F(GgufPack, CutsTextAsDeepSeekDoes) {
  packed(file_of("deepseek2_sigmoid"));
  const auto regexes = [](const fs::path& file) {
    std::vector<std::string> found;
    const auto tokenizer = nlohmann::json::parse(testing::read_text(file));
    for (const auto& step : tokenizer["pre_tokenizer"]["pretokenizers"])
      if (step["type"] == "Split") found.push_back(step["pattern"]["Regex"]);
    return found;
  };
  auto wanted = regexes(test::source_dir() / "tests/fixtures/tokenizers/deepseek.json");
  ASSERT_EQ(wanted.size(), 3u);
  wanted[2].erase(wanted[2].find("\\\""), 1);  // a quote is a quote, with or without a backslash
  EXPECT_EQ(regexes(dir_ / "pack" / "tokenizer.json"), wanted);
}

// Newer files have the keys of latent attention transposed, head by head, and the values, as tensors of their own.
TEST_F(GgufPack, KeysAndValuesOfLatentsBecomeOneMatrix) {
  const Manifest m = packed(file_of("deepseek2_split"));
  const auto found = std::ranges::find(m.tensors, "layers.0.kv_b.weight", &PackedTensor::name);
  ASSERT_NE(found, m.tensors.end());
  EXPECT_EQ(found->shape, (std::vector<int64_t>{2 * (32 + 32), 32}));
  EXPECT_EQ(found->dtype, DType::kF32) << "blocks lie along what is read across";
  EXPECT_THAT(pack(edited("deepseek2_split", "blk.1.attn_v_b.weight", "blk.1.attn_w_b.weight")).message(),
              HasSubstr("'blk.1.attn_kv_b.weight' is missing"));
}

TEST_F(GgufPack, RefusesFactorsOfRopeThatAreNone) {
  const auto gguf = GgufModel::open(file_of("llama4_q8_0"));
  ASSERT_TRUE(gguf) << gguf.status().message();
  const auto factors = std::ranges::find(gguf->header.tensors, "rope_freqs.weight", &GgufTensor::name);
  ASSERT_NE(factors, gguf->header.tensors.end());
  std::string bytes = testing::read_text(file_of("llama4_q8_0"));
  bytes.replace(factors->offset, 4, std::string(4, '\0'));
  testing::write_text(dir_ / "edited.gguf", bytes);
  expect_refused(dir_ / "edited.gguf", "'rope_freqs.weight' holds a factor that is not above 0");
}

TEST_F(GgufPack, HasTheFilesOfATokenizer) {
  const Manifest m = packed(fixture("qwen2moe_split"));
  EXPECT_EQ(m.model_name, "qwen2moe_split");
  std::vector<std::string> names;
  for (const CopiedFile& c : m.copied) names.push_back(c.name);
  EXPECT_THAT(names, UnorderedElementsAre("config.json", "tokenizer.json", "tokenizer_config.json",
                                          "chat_template.jinja"));
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "config.json"), m.config_json);
}

TEST_F(GgufPack, BytesAreTheSameWithAnyNumberOfThreadsAndAfterAnInterruption) {
  packed(file_of("glm4moe_mxfp4"), {.jobs = 1, .model_name = "m"});
  const auto one = testing::read_directory(dir_ / "pack");
  fs::remove_all(dir_ / "pack");
  packed(file_of("glm4moe_mxfp4"), {.jobs = 3, .model_name = "m", .scratch_bytes_max = 1});
  EXPECT_EQ(testing::read_directory(dir_ / "pack"), one);
}

TEST_F(GgufPack, OnlyWhatIsAskedForIsConverted) {
  const Manifest m = packed(file_of("qwen3moe_few_bits"), {.experts = {DType::kInt8}});
  EXPECT_EQ(m.expert_precisions, std::vector{DType::kInt8});
  EXPECT_EQ(m.tensors[0].dtype, DType::kQ3K);
}

TEST_F(GgufPack, RefusesPartsThatAreMissingOrRenamed) {
  const std::string first = "qwen2moe_split-00001-of-00002.gguf", second = "qwen2moe_split-00002-of-00002.gguf";
  fs::copy(fixture("qwen2moe_split") / first, dir_ / first);
  expect_refused(dir_ / first, "part 2 of 2");
  fs::copy(fixture("qwen2moe_split") / first, dir_ / second);
  expect_refused(dir_ / first, "says that it is part 1 (split.no), by its name it is 2");
  fs::copy(fixture("qwen2moe_split") / first, dir_ / "one.gguf");
  expect_refused(dir_ / "one.gguf", "is a part of 2 (split.count), by its name of 1");
}

TEST_F(GgufPack, RefusesADirectoryWithSeveralModels) {
  fs::create_directory(dir_ / "models");
  fs::copy(file_of("dots1_q8_0"), dir_ / "models" / "a.gguf");
  fs::copy(file_of("dots1_q8_0"), dir_ / "models" / "mmproj-a.gguf");
  EXPECT_TRUE(find_gguf(dir_ / "models")) << "what sees images is no model";
  fs::copy(file_of("dots1_q8_0"), dir_ / "models" / "b.gguf");
  expect_refused(dir_ / "models", "holds several models as GGUF; give the file of one");
}

// Repositories of GGUF files may hold the config.json of the original beside them.
TEST_F(GgufPack, ADirectoryWithItsConfigIsStillOfGguf) {
  fs::create_directory(dir_ / "model");
  fs::copy(file_of("dots1_q8_0"), dir_ / "model" / "a.gguf");
  for (const char* name : {"config.json", "tokenizer.json"}) testing::write_text(dir_ / "model" / name, "{}");
  EXPECT_EQ(packed(dir_ / "model").model_name, "a");
  for (const char* name : {"model.safetensors", "x.safetensors", "model.safetensors.index.json"}) {
    testing::write_text(dir_ / "model" / name, "{}");
    const auto gguf = find_gguf(dir_ / "model");
    ASSERT_TRUE(gguf) << gguf.status().message();
    EXPECT_EQ(*gguf, fs::path()) << name;
    fs::remove(dir_ / "model" / name);
  }
}

TEST_F(GgufPack, RefusesWhatItDoesNotKnowByName) {
  expect_refused(edited("llama_q8_0", "llama.rope.freq_base", "llama.rope.frog_base"),
                 "'llama.rope.frog_base' is not supported");
  expect_refused(edited("dots1_q8_0", "blk.0.attn_q.weight", "blk.0.attn_r.weight"),
                 "'blk.0.attn_q.weight' is missing");
  expect_refused(edited("dots1_q8_0", "output_norm.weight", "output_nurm.weight"), "'output_norm.weight' is missing");
  expect_refused(edited("olmoe_separate", "general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0olmoe"s,
                        "general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0grogo"s),
                 "the family 'grogo' is not supported as GGUF (llama, qwen2moe");
  expect_refused(edited("dots1_q8_0", "qwen2", "qwen9"), "the pre-tokenizer 'qwen9'");
  expect_refused(edited("dots1_q8_0", "gpt2", "bert"), "the tokenizer 'bert'");
}

TEST_F(GgufPack, RefusesMetadataThatContradictTheTensors) {
  const auto number = [](const std::string& key, char from, char to) {
    const std::string head = key + "\x04\0\0\0"s;
    return std::pair(head + from + "\0\0\0"s, head + to + "\0\0\0"s);
  };
  for (const auto& [key, from, to, says] :
       {std::tuple{"llama.expert_count", '\4', '\5', "does not hold 5 experts"},
        std::tuple{"llama.block_count", '\2', '\3', "'blk.2.attn_norm.weight' is missing"},
        std::tuple{"llama.block_count", '\2', '\1', "is no part of MixtralForCausalLM"},
        std::tuple{"llama.feed_forward_length", '@', '\x20', "has shape"},
        std::tuple{"llama.attention.head_count_kv", '\2', '\4', "has shape"},
        std::tuple{"llama.attention.head_count", '\4', '\3', "'llama.rope.dimension_count' is 16"},
        std::tuple{"tokenizer.ggml.bos_token_id", '\1', '\xff', "there are 128 tokens"}}) {
    const auto [was, is] = number(key, from, to);
    expect_refused(edited("llama_q8_0", was, is), says);
  }
}

// A type that nothing computes with: the tensor, its type and number, and what to do.
TEST_F(GgufPack, RefusesATypeWithoutKernelsByName) {
  const std::string name = "blk.0.ffn_gate_exps.weight";
  std::string bytes = testing::read_text(file_of("minimax-m2_q4_0"));
  const size_t type = bytes.find(name) + name.size() + 4 + 3 * 8;
  ASSERT_EQ(bytes[type], 2) << "Q4_0";
  bytes[type] = 16;
  testing::write_text(dir_ / "edited.gguf", bytes);
  expect_refused(dir_ / "edited.gguf", "not whole blocks of 256 (IQ2_XXS)");
  bytes[type] = 24;  // I8: 32 bytes of each 32 columns overlap what follows
  testing::write_text(dir_ / "edited.gguf", bytes);
  expect_refused(dir_ / "edited.gguf", "overlaps another one");
  bytes[type] = 40;  // as many bytes as Q4_0 of each 64 columns
  testing::write_text(dir_ / "edited.gguf", bytes);
  expect_refused(dir_ / "edited.gguf", "is NVFP4 (type 40), which nothing computes with yet (F32, F16, ");
  bytes[type] = 99;
  testing::write_text(dir_ / "edited.gguf", bytes);
  expect_refused(dir_ / "edited.gguf", "has the unknown type 99");
}

TEST_F(GgufPack, RefusesScalesThatAreNotFinite) {
  std::string bytes = testing::read_text(file_of("llama_q8_0"));
  const auto checkpoint = Checkpoint::open(file_of("llama_q8_0"));
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  const SourceTensor& t = checkpoint->tensor(checkpoint->model().experts[1].up);
  bytes[t.offset + 34 * 5] = '\0', bytes[t.offset + 34 * 5 + 1] = '\x7c';
  testing::write_text(dir_ / "edited.gguf", bytes);
  EXPECT_THAT(pack(dir_ / "edited.gguf").message(),
              HasSubstr("'blk.0.ffn_up_exps.weight' is infinite or not a number at block 5"));
}

TEST(GgufConfig, SaysWhichArchitectureAFileIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"gpt-oss_mxfp4", "GptOssForCausalLM"},        {"deepseek2_split", "DeepseekV2ForCausalLM"},
      {"deepseek2_sigmoid", "DeepseekV3ForCausalLM"}, {"ernie4_5-moe_q8_0", "Ernie4_5_MoeForCausalLM"},
      {"granitemoe_shared", "GraniteMoeSharedForCausalLM"}, {"llama4_q8_0", "Llama4ForCausalLM"},
      {"arctic_q8_0", "ArcticForCausalLM"},          {"dbrx_q8_0", "DbrxForCausalLM"}};
  for (const auto& [name, architecture] : cases) {
    const auto checkpoint = Checkpoint::open(file_of(name));
    ASSERT_TRUE(checkpoint) << name << ": " << checkpoint.status().message();
    EXPECT_EQ(checkpoint->model().spec.architecture, architecture);
  }
}

/// The header of a fixture, to be changed.
GgufHeader header_of(const std::string& name) {
  auto gguf = GgufModel::open(file_of(name));
  EXPECT_TRUE(gguf) << gguf.status().message();
  return gguf ? std::move(gguf->header) : GgufHeader();
}

void expect_config_refused(const GgufHeader& header, const std::string& says, const GgufVectors& vectors = {}) {
  const auto config = gguf_config(header, vectors);
  ASSERT_FALSE(config) << says;
  EXPECT_THAT(config.status().message(), HasSubstr(says));
}

TEST(GgufConfig, RefusesWhatDbrxHasNoKeyFor) {
  GgufHeader header = header_of("dbrx_q8_0");
  ASSERT_TRUE(gguf_config(header));
  header.metadata.values["dbrx.attention.layer_norm_epsilon"] = 1e-7;
  expect_config_refused(header, "'dbrx.attention.layer_norm_epsilon' is 1e-07; only 1e-05 is supported");
  header = header_of("dbrx_q8_0");
  header.metadata.values["dbrx.rope.dimension_count"] = int64_t{2};
  expect_config_refused(header, "'dbrx.rope.dimension_count' is 2; only ");
}

TEST(GgufConfig, RefusesFactorsOfRopeThatItWouldNotUse) {
  const GgufHeader header = header_of("dots1_q8_0");
  const char *all = "rope_freqs.weight", *shorter = "rope_factors_short.weight", *longer = "rope_factors_long.weight";
  const std::vector<double> factors = {1.0, 2.0};
  EXPECT_TRUE(gguf_config(header, {{all, factors}}));
  EXPECT_TRUE(gguf_config(header, {{shorter, factors}, {longer, factors}}));
  expect_config_refused(header, "'rope_factors_long.weight' is missing, but 'rope_factors_short.weight' is there",
                        {{shorter, factors}});
  expect_config_refused(header, "'rope_factors_short.weight' is missing, but 'rope_factors_long.weight' is there",
                        {{longer, factors}});
  expect_config_refused(header, "'rope_freqs.weight' together with 'rope_factors_long.weight' is not supported",
                        {{all, factors}, {longer, factors}});
  expect_config_refused(header, "'rope_freqs.weight' together with 'rope_factors_short.weight' is not supported",
                        {{all, factors}, {shorter, factors}, {longer, factors}});
}

TEST(GgufConfig, RefusesNumbersThatAreNotFinite) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    GgufHeader header = header_of("llama_q8_0");
    header.metadata.values["llama.rope.freq_base"] = bad;
    expect_config_refused(header, "'llama.rope.freq_base' is infinite or not a number");
    header.metadata.values["tokenizer.ggml.scores"] = std::vector{0.0, bad};
    EXPECT_THAT(header.metadata.numbers("tokenizer.ggml.scores").status().message(),
                HasSubstr("'tokenizer.ggml.scores' holds a number that is infinite or none"));
  }
  GgufHeader header = header_of("llama_q8_0");
  header.metadata.values["llama.rope.freq_base"] = 1e300;  // of F64, beyond f32
  const auto config = gguf_config(header);
  ASSERT_TRUE(config) << config.status().message();
  EXPECT_EQ(nlohmann::json::parse(config->json)["rope_theta"], 1e300);
}

TEST(GgufConfig, RefusesMoreLayersAfterTheLastThanThereAre) {
  GgufHeader header = header_of("glm4moe_mxfp4");
  header.metadata.values["glm4moe.nextn_predict_layers"] = int64_t{64};
  expect_config_refused(header, "'glm4moe.nextn_predict_layers' is 64; there are 3 layers");
}

TEST_F(GgufPack, SaysWhatItTookForWhatTheFileDoesNotSay) {
  std::vector<std::string> notes;
  const PackObserver observer{.progress = {}, .note = [&](const std::string& line) { notes.push_back(line); }};
  ASSERT_TRUE(pack_checkpoint(file_of("llama4_q8_0"), dir_ / "pack", {}, observer));
  EXPECT_THAT(notes, Contains(HasSubstr("whether rotated heads are normed (use_qk_norm)")));

  GgufHeader header = header_of("deepseek2_sigmoid");
  header.metadata.values["deepseek2.expert_group_count"] = int64_t{1};
  EXPECT_THAT(gguf_config(header)->remarks, IsEmpty());
  header.metadata.values.erase("deepseek2.expert_group_count");
  EXPECT_THAT(gguf_config(header)->remarks, ElementsAre(HasSubstr("(deepseek2.expert_group_count)")));
}

// As Hugging Face's conversion of tiktoken's files has it.
TEST(GgufTokenizer, WordsOfLlama4ThatAreTokensStayWhole) {
  const auto made = gguf_tokenizer_files(header_of("llama4_q8_0").metadata);
  ASSERT_TRUE(made) << made.status().message();
  EXPECT_EQ(nlohmann::json::parse(made->front().text)["model"]["ignore_merges"], true);
}

TEST(GgufTokenizer, ScoresThatGiveNoOrderAreRefused) {
  GgufMetadata metadata = header_of("llama_q8_0").metadata;
  ASSERT_TRUE(gguf_tokenizer_files(metadata));
  auto& scores = std::get<std::vector<double>>(metadata.values["tokenizer.ggml.scores"]);
  std::ranges::fill(scores, -1000.0);
  EXPECT_THAT(gguf_tokenizer_files(metadata).status().message(), HasSubstr("'tokenizer.ggml.scores' are all the same"));
}

TEST(GgufTokenizer, ATemplateForTools) {
  GgufMetadata metadata = header_of("llama4_q8_0").metadata;
  metadata.values["tokenizer.chat_template.tool_use"] = std::string("{{ tools }}");
  const auto made = gguf_tokenizer_files(metadata);
  ASSERT_TRUE(made) << made.status().message();
  EXPECT_EQ(made->back().name, "tool_use.jinja");
  EXPECT_EQ(made->back().text, "{{ tools }}");
}

TEST(GgufConfig, LatentsAndYarnOfDeepSeek) {
  const auto checkpoint = Checkpoint::open(file_of("deepseek2_split"));
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  const model::ModelSpec& spec = checkpoint->model().spec;
  const model::LatentSpec& latent = *spec.layers[0].latent;
  EXPECT_EQ(latent.heads, 2);
  EXPECT_EQ(latent.kv_rank, 32);
  EXPECT_EQ(latent.nope_dim, 32);
  EXPECT_EQ(latent.rope_dim, 8);
  EXPECT_EQ(latent.value_dim, 32);
  EXPECT_NEAR(spec.rope.mscale_all_dim.value_or(0), 0.707, 1e-6);
}

// The converter adds 1 to norms, takes the decay's logarithm away, and in Qwen3.5 gives heads of keys theirs in turn.
TEST(GgufConfig, HybridsAreAsTheirFilesHaveThem) {
  const auto opened = Checkpoint::open(file_of("qwen35moe_q4_0"));
  ASSERT_TRUE(opened) << opened.status().message();
  const model::ModelSpec& spec = opened->model().spec;
  EXPECT_EQ(spec.architecture, "Qwen3_5MoeForCausalLM");
  EXPECT_EQ(spec.norm_offset, 0.0);
  EXPECT_EQ(spec.mtp_layers, 1);
  EXPECT_EQ(spec.rope.rotary_dim, 8);
  ASSERT_TRUE(spec.layers[0].delta);
  EXPECT_FALSE(spec.layers[1].delta);
  EXPECT_TRUE(spec.layers[0].delta->in_turn);
  EXPECT_TRUE(spec.layers[0].delta->decay_as_is);
  const auto older = Checkpoint::open(file_of("qwen3next_q8_0"));
  ASSERT_TRUE(older) << older.status().message();
  EXPECT_FALSE(older->model().spec.layers[0].delta->in_turn);
  EXPECT_TRUE(older->model().spec.layers[0].delta->decay_as_is);
}

TEST(GgufConfig, RefusesHybridsThatContradictThemselves) {
  GgufHeader header = header_of("qwen35moe_q4_0");
  header.metadata.values["qwen35moe.attention.recurrent_layers"] = std::vector<int64_t>{1, 0};
  expect_config_refused(header, "'qwen35moe.attention.recurrent_layers' does not name every layer");
  header.metadata.values["qwen35moe.attention.recurrent_layers"] = std::vector<int64_t>{1, 0, 1};
  EXPECT_TRUE(gguf_config(header)) << "whole numbers will do";
  GgufHeader biased = header;
  biased.tensors.push_back({.name = "blk.1.attn_q.bias", .shape = {8}});
  EXPECT_THAT(gguf_config(biased)->json, HasSubstr("\"attention_bias\": true")) << "of any layer";
  EXPECT_THAT(gguf_config(header)->json, HasSubstr("\"attention_bias\": false"));
  header.metadata.values["qwen35moe.ssm.inner_size"] = int64_t{97};
  expect_config_refused(header, "'qwen35moe.ssm.inner_size' (97) must be a multiple of ssm.time_step_rank (6)");
}

TEST(GgufConfig, IsThatOfTransformers) {
  const auto checkpoint = Checkpoint::open(file_of("glm4moe_mxfp4"));
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  const model::ModelSpec& spec = checkpoint->model().spec;
  EXPECT_EQ(spec.architecture, "Glm4MoeForCausalLM");
  EXPECT_EQ(spec.layers.size(), 2u);
  EXPECT_EQ(spec.mtp_layers, 1);
  EXPECT_EQ(spec.rope.rotary_dim, 8);
  EXPECT_EQ(spec.moe().router.scale, 1.5);
  EXPECT_FALSE(spec.layers[0].moe_index) << "the first layer is dense";
  EXPECT_EQ(spec.norm_eps, 1e-5) << "as it was written, not as f32 rounds it";
  const auto config = nlohmann::json::parse(checkpoint->config_json());
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["eos_token_id"], nlohmann::json::array({2}));
}

}  // namespace
}  // namespace moestro::store
