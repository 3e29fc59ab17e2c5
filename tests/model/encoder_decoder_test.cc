// What Switch Transformers and NLLB-MoE become: two stacks in one list of layers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using Stack = LayerSpec::Stack;
using testing::ElementsAre;

ModelDescription describe_tiny(const std::string& architecture, const nlohmann::json& patch = {}) {
  nlohmann::json config = tiny_config(architecture);
  if (!patch.is_null()) config.merge_patch(patch);
  auto described = describe_model(config.dump(), "");
  EXPECT_TRUE(described) << described.status().message();
  return std::move(*described);
}

std::vector<int> sparse_layers(const ModelSpec& spec) {
  std::vector<int> found;
  for (const LayerSpec& layer : spec.layers)
    if (layer.moe_index) found.push_back(static_cast<int>(layer.index.value));
  return found;
}

const DenseTensor* named(const ModelDescription& d, const std::string& name) {
  const auto found = std::ranges::find(d.dense, name, &DenseTensor::name);
  return found == d.dense.end() ? nullptr : &*found;
}

TEST(EncoderDecoder, SwitchTransformersHasTwoStacks) {
  const ModelDescription d = describe_tiny("SwitchTransformersForConditionalGeneration");
  const ModelSpec& spec = d.spec;
  ASSERT_EQ(spec.layers.size(), 7u);
  EXPECT_EQ(spec.encoder_layers(), 4);
  EXPECT_EQ(spec.encoder_moe_layers(), 2);
  EXPECT_THAT(sparse_layers(spec), ElementsAre(1, 3, 4, 5, 6));
  EXPECT_EQ(spec.layers[4].moe_index->value, 2u) << "MoE layers are counted through both stacks";
  EXPECT_EQ(spec.layers[3].stack, Stack::kEncoder);
  EXPECT_EQ(spec.layers[4].stack, Stack::kDecoder);
  EXPECT_EQ(spec.layers[3].kv.kind, KvSpec::Kind::kNone);
  EXPECT_FALSE(spec.layers[3].cross.has_value());
  ASSERT_TRUE(spec.layers[4].cross.has_value());
  EXPECT_FALSE(spec.layers[4].cross->position_bias);
  EXPECT_TRUE(spec.layers[4].attention.position_bias);
  EXPECT_EQ(spec.layers[4].attention.scale, 1.0);
  EXPECT_EQ(spec.moe().router.sequence_rows, 64);
  EXPECT_EQ(spec.moe().top_k, 1);
  EXPECT_FALSE(spec.moe().expert.is_gated());
  EXPECT_DOUBLE_EQ(spec.logits_divisor, std::sqrt(32.0)) << "a tied head is scaled";
  EXPECT_EQ(spec.decoder_start_id, 0);
  EXPECT_EQ(named(d, "layers.4.cross.q.weight")->source_name, "decoder.block.0.layer.1.EncDecAttention.q.weight");
  EXPECT_THAT(named(d, "layers.4.cross.q.weight")->shape, ElementsAre(24, 32));
  EXPECT_EQ(named(d, "layers.0.mlp.up.weight")->source_name, "encoder.block.0.layer.1.mlp.wi.weight");
  EXPECT_EQ(named(d, "encoder_bias.weight")->source_name,
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  EXPECT_EQ(named(d, "layers.0.mlp.gate.weight"), nullptr);
  EXPECT_EQ(d.experts.size(), 20u);
  EXPECT_EQ(d.experts[8].up, "decoder.block.0.layer.2.mlp.experts.expert_0.wi.weight");
  EXPECT_TRUE(d.experts[8].gate.empty());
}

TEST(EncoderDecoder, SwitchTransformersWithoutATiedHeadIsNotScaled) {
  const ModelDescription d =
      describe_tiny("SwitchTransformersForConditionalGeneration", {{"tie_word_embeddings", false}});
  EXPECT_EQ(d.spec.logits_divisor, 1.0);
  EXPECT_NE(named(d, "head.weight"), nullptr);
}

TEST(EncoderDecoder, TargetsBeginAsTheGenerationConfigSays) {
  nlohmann::json config = tiny_config("NllbMoeForConditionalGeneration");
  config["decoder_start_token_id"] = 2, config["forced_bos_token_id"] = 7;
  const auto described = describe_model(config.dump(), R"({"decoder_start_token_id": 3, "forced_bos_token_id": null})");
  ASSERT_TRUE(described) << described.status().message();
  EXPECT_EQ(described->spec.decoder_start_id, 3);
  EXPECT_EQ(described->spec.forced_bos_id, 7) << "it says nothing of that";
  const auto outside = describe_model(config.dump(), R"({"forced_bos_token_id": 1000000})");
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.status().message(),
              testing::AllOf(testing::HasSubstr("generation_config.json: forced_bos_token_id 1000000"),
                             testing::HasSubstr("outside the vocabulary")));
}

TEST(EncoderDecoder, ASparseStepIsOfTransformers) {
  // No sparse layers asked for, and still transformers makes layer 1 of each stack sparse.
  const ModelDescription d = describe_tiny("SwitchTransformersForConditionalGeneration",
                                           {{"num_sparse_encoder_layers", 0}, {"num_sparse_decoder_layers", 0}});
  EXPECT_THAT(sparse_layers(d.spec), ElementsAre(1, 5));
}

TEST(EncoderDecoder, NllbMoeHasTwoStacks) {
  const ModelDescription d = describe_tiny("NllbMoeForConditionalGeneration");
  const ModelSpec& spec = d.spec;
  ASSERT_EQ(spec.layers.size(), 6u);
  EXPECT_THAT(sparse_layers(spec), ElementsAre(1, 3, 5));
  EXPECT_EQ(spec.layers[0].attention.head_dim, 8);
  EXPECT_EQ(spec.layers[4].attention.head_dim, 16);
  EXPECT_EQ(spec.norm, ModelSpec::Norm::kLayer);
  EXPECT_TRUE(spec.sinusoidal_positions);
  EXPECT_DOUBLE_EQ(spec.embedding_scale, std::sqrt(32.0));
  EXPECT_EQ(spec.logits_divisor, 1.0);
  EXPECT_EQ(spec.moe().top_k, 2);
  EXPECT_TRUE(spec.moe().router.normalise);
  EXPECT_DOUBLE_EQ(spec.moe().router.scale, 0.8) << "moe_token_dropout";
  EXPECT_TRUE(spec.moe().expert.bias);
  EXPECT_EQ(spec.moe().router.sequence_rows, 0) << "with a fraction of 1 no token is dropped";
  EXPECT_EQ(named(d, "layers.4.cross.o.bias")->source_name, "model.decoder.layers.0.cross_attention.out_proj.bias");
  EXPECT_EQ(named(d, "layers.4.cross_norm.bias")->source_name,
            "model.decoder.layers.0.cross_attention_layer_norm.bias");
  EXPECT_EQ(named(d, "encoder_norm.weight")->source_name, "model.encoder.layer_norm.weight");
  EXPECT_EQ(d.experts[4].down_bias, "model.encoder.layers.3.ffn.experts.expert_0.fc2.bias");
}

double parameters_in_billions(const ModelDescription& d) {
  double sum = 0;
  for (const DenseTensor& t : d.dense) {
    double n = 1;
    for (const int64_t s : t.shape) n *= static_cast<double>(s);
    sum += n;
  }
  const ExpertSpec& e = d.spec.moe().expert;
  const int64_t each = e.matrices * e.hidden * e.ffn + (e.bias ? e.ffn + e.hidden : 0);
  return (sum + static_cast<double>(each) * static_cast<double>(d.experts.size())) / 1e9;
}

TEST(EncoderDecoder, PublishedSizesAddUp) {
  const ModelDescription base = describe_tiny(
      "SwitchTransformersForConditionalGeneration",
      {{"d_model", 768}, {"d_kv", 64}, {"d_ff", 3072}, {"num_heads", 12}, {"num_layers", 12},
       {"num_decoder_layers", 12}, {"num_sparse_encoder_layers", 6}, {"num_sparse_decoder_layers", 6},
       {"num_experts", 8}, {"vocab_size", 32128}, {"encoder_sparse_step", 2}, {"decoder_sparse_step", 2},
       {"feed_forward_proj", "relu"}, {"router_type", "tokens_masked"}, {"n_positions", 512}});
  EXPECT_NEAR(parameters_in_billions(base), 0.62, 0.01) << "switch-base-8";
  EXPECT_EQ(base.spec.moe_layers(), 12);
  const ModelDescription nllb = describe_tiny(
      "NllbMoeForConditionalGeneration",
      {{"d_model", 2048}, {"encoder_layers", 24}, {"decoder_layers", 24}, {"encoder_ffn_dim", 8192},
       {"decoder_ffn_dim", 8192}, {"encoder_attention_heads", 16}, {"decoder_attention_heads", 16},
       {"encoder_sparse_step", 4}, {"decoder_sparse_step", 4}, {"num_experts", 128}, {"vocab_size", 256206},
       {"max_position_embeddings", 1024}, {"num_hidden_layers", 24}});  // written by transformers 4
  EXPECT_NEAR(parameters_in_billions(nllb), 54.5, 0.1) << "nllb-moe-54b";
  EXPECT_EQ(nllb.spec.moe_layers(), 12);
}

}  // namespace
}  // namespace moestro::model
