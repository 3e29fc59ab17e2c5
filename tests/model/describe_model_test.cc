#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/model/expert_storage.h"
#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using testing::ElementsAre;

std::vector<std::string> sources(const ModelDescription& d) {
  std::vector<std::string> names;
  for (const DenseTensor& t : d.dense) names.push_back(t.source_name);
  return names;
}

TEST(DescribeModel, KnowsTheFamilies) {
  EXPECT_THAT(known_architectures(),
              ElementsAre("MixtralForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM",
                          "Glm4MoeForCausalLM", "SolarOpenForCausalLM", "Dots1ForCausalLM", "DeepseekV2ForCausalLM",
                          "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM", "MiniMaxM2ForCausalLM",
                          "GptOssForCausalLM", "Ernie4_5_MoeForCausalLM", "GraniteMoeForCausalLM",
                          "GraniteMoeSharedForCausalLM", "PhimoeForCausalLM", "PhiMoEForCausalLM", "DbrxForCausalLM",
                          "ArcticForCausalLM", "Llama4ForCausalLM", "Llama4ForConditionalGeneration",
                          "Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM",
                          "SwitchTransformersForConditionalGeneration", "NllbMoeForConditionalGeneration"));
  for (const std::string& name : known_architectures()) {
    const auto d = describe(name);
    ASSERT_TRUE(d) << d.status().message();
    EXPECT_EQ(d->spec.architecture, name);
    if (d->spec.is_encoder_decoder()) continue;  // encoder_decoder_test.cc
    EXPECT_EQ(d->spec.layers.size(), 3u);
    EXPECT_EQ(d->spec.moe_layers(), 3);
    EXPECT_EQ(d->experts.size(), 12u);
    const LayerSpec& layer = d->spec.layers[0];
    const bool granite = name.starts_with("Granite");  // whose files say it
    EXPECT_DOUBLE_EQ(layer.latent ? layer.latent->scale : layer.attention.scale,
                     granite ? 1.0 : 1 / std::sqrt(layer.latent ? 16.0 : 8));
  }
}

TEST(DescribeModel, MixtralNamesAndDefaults) {
  const auto d = describe("MixtralForCausalLM", R"({"sliding_window": 64})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.rope.theta, 1e6);
  EXPECT_EQ(d->spec.norm_eps, 1e-5);
  EXPECT_TRUE(d->spec.moe().router.normalise);
  EXPECT_EQ(d->spec.layers[2].attention.sliding_window, 64);
  EXPECT_EQ(d->experts[5].gate, "model.layers.1.block_sparse_moe.experts.1.w1.weight");
  EXPECT_EQ(d->experts[5].up, "model.layers.1.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(d->experts[5].down, "model.layers.1.block_sparse_moe.experts.1.w2.weight");
  EXPECT_THAT(sources(*d), testing::IsSupersetOf({"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                                                  "model.layers.2.block_sparse_moe.gate.weight",
                                                  "model.layers.0.self_attn.o_proj.weight"}));
  EXPECT_THAT(find(*d, "layers.0.attn.k.weight")->shape, ElementsAre(16, 32));
}

TEST(DescribeModel, Qwen2MoeHasASharedExpertAndBiases) {
  const auto d = describe("Qwen2MoeForCausalLM");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.moe().shared_ffn, 40);
  EXPECT_TRUE(d->spec.moe().shared_gate);
  EXPECT_FALSE(d->spec.moe().router.normalise);
  EXPECT_TRUE(d->spec.layers[0].attention.qkv_bias);
  EXPECT_FALSE(d->spec.layers[0].attention.output_bias);
  EXPECT_EQ(find(*d, "layers.1.shared.down.weight")->source_name, "model.layers.1.mlp.shared_expert.down_proj.weight");
  EXPECT_THAT(find(*d, "layers.1.shared_gate.weight")->shape, ElementsAre(1, 32));
  EXPECT_EQ(find(*d, "layers.0.attn.o.bias"), nullptr);
}

TEST(DescribeModel, Qwen2MoeWindowsLieOnEverySecondLayerBelowTheLimit) {
  const auto d =
      describe("Qwen2MoeForCausalLM",
               R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 3, "num_hidden_layers": 5})");
  ASSERT_TRUE(d) << d.status().message();
  std::vector<int64_t> windows;
  for (const LayerSpec& l : d->spec.layers) windows.push_back(l.attention.sliding_window);
  EXPECT_THAT(windows, ElementsAre(16, 0, 16, 0, 0));
  const auto typed = describe("Qwen2MoeForCausalLM", R"({"use_sliding_window": true, "sliding_window": 16,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"]})");
  ASSERT_TRUE(typed) << typed.status().message();
  EXPECT_EQ(typed->spec.layers[0].attention.sliding_window, 0);
  EXPECT_EQ(typed->spec.layers[1].attention.sliding_window, 16);
}

TEST(DescribeModel, DenseLayersAmongSparseOnes) {
  const auto d = describe("Qwen3MoeForCausalLM",
                          R"({"num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3, 99]})");
  ASSERT_TRUE(d) << d.status().message();
  std::vector<bool> sparse;
  for (const LayerSpec& l : d->spec.layers) sparse.push_back(l.moe_index.has_value());
  EXPECT_THAT(sparse, ElementsAre(false, true, false, false, false, true));
  EXPECT_EQ(d->spec.layers[5].moe_index, MoeLayerId(1));
  EXPECT_EQ(d->spec.layers[0].dense_ffn, 48);
  EXPECT_EQ(find(*d, "layers.0.mlp.gate.weight")->source_name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(find(*d, "layers.0.router.weight"), nullptr);
  EXPECT_EQ(d->experts[4].layer, LayerId(5));
  EXPECT_EQ(d->experts[4].moe_layer, MoeLayerId(1));
}

TEST(DescribeModel, Qwen3MoeNormsEachHeadAndHeadDimStandsAlone) {
  const auto d =
      describe("Qwen3MoeForCausalLM", R"({"head_dim": 24, "attention_bias": true, "tie_word_embeddings": true,
      "norm_topk_prob": true, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.layers[0].attention.qk_norm, AttentionSpec::QkNorm::kPerHead);
  EXPECT_THAT(find(*d, "layers.0.attn.q.weight")->shape, ElementsAre(96, 32));
  EXPECT_THAT(find(*d, "layers.0.attn.q_norm.weight")->shape, ElementsAre(24));
  EXPECT_NE(find(*d, "layers.0.attn.o.bias"), nullptr);
  EXPECT_EQ(find(*d, "head.weight"), nullptr);
  EXPECT_TRUE(d->spec.moe().router.normalise);
  EXPECT_EQ(d->spec.layers[2].attention.sliding_window, 8);
  EXPECT_EQ(d->spec.rope.rotary_dim, 24);
}

TEST(DescribeModel, OlmoeNormsTheWholeWidthAndClips) {
  const auto d = describe("OlmoeForCausalLM", R"({"clip_qkv": 8.0, "num_key_value_heads": null})");
  ASSERT_TRUE(d) << d.status().message();
  const AttentionSpec& a = d->spec.layers[0].attention;
  EXPECT_EQ(a.qk_norm, AttentionSpec::QkNorm::kFullWidth);
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.clip_qkv, 8.0);
  EXPECT_THAT(find(*d, "layers.0.attn.k_norm.weight")->shape, ElementsAre(32));
}

TEST(DescribeModel, Glm4MoeRotatesHalfAndChoosesInGroupsWithABias) {
  const auto d = describe("Glm4MoeForCausalLM", R"({"head_dim": 16, "use_qk_norm": true, "attention_bias": true,
      "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
      "num_nextn_predict_layers": 2})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.rope.rotary_dim, 8);
  EXPECT_EQ(d->spec.mtp_layers, 2);
  EXPECT_FALSE(d->spec.layers[0].moe_index);
  EXPECT_EQ(d->spec.layers[0].dense_ffn, 48);
  EXPECT_TRUE(d->spec.layers[0].attention.qkv_bias);
  EXPECT_FALSE(d->spec.layers[0].attention.output_bias);
  EXPECT_EQ(d->spec.layers[0].attention.qk_norm, AttentionSpec::QkNorm::kPerHead);
  const MoeSpec& moe = d->spec.moe();
  EXPECT_EQ(moe.shared_ffn, 48) << "two experts of 24 in one";
  EXPECT_FALSE(moe.shared_gate);
  EXPECT_EQ(moe.router.scores, RouterSpec::Scores::kSigmoid);
  EXPECT_TRUE(moe.router.normalise);
  EXPECT_EQ(moe.router.scale, 2.5);
  EXPECT_EQ(moe.router.groups, 2);
  EXPECT_EQ(moe.router.groups_kept, 1);
  const DenseTensor* bias = find(*d, "layers.1.router.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_TRUE(bias->exact);
  EXPECT_EQ(bias->source_name, "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(find(*d, "layers.1.shared.up.weight")->source_name, "model.layers.1.mlp.shared_experts.up_proj.weight");
}

TEST(DescribeModel, Glm4MoeSaysHowMuchIsRotatedInEitherPlace) {
  const auto rotated = [](const std::string& patch) {
    const auto d = describe("Glm4MoeForCausalLM", patch);
    return d ? d->spec.rope.rotary_dim : -1;
  };
  EXPECT_EQ(rotated(R"({"head_dim": 16, "partial_rotary_factor": 0.25})"), 4);
  EXPECT_EQ(rotated(R"({"head_dim": 16, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}})"),
            12);
  EXPECT_EQ(rotated(R"({"head_dim": 16, "partial_rotary_factor": 1.0})"), 16);
}

TEST(DescribeModel, Dots1WindowsLieOnTheLastLayers) {
  const auto d = describe("Dots1ForCausalLM", R"({"sliding_window": 16, "max_window_layers": 2})");
  ASSERT_TRUE(d) << d.status().message();
  std::vector<int64_t> windows;
  for (const LayerSpec& l : d->spec.layers) windows.push_back(l.attention.sliding_window);
  EXPECT_THAT(windows, ElementsAre(0, 0, 16));
  EXPECT_FALSE(d->spec.moe().router.normalise);
  EXPECT_EQ(d->spec.layers[0].attention.qk_norm, AttentionSpec::QkNorm::kPerHead);
  EXPECT_EQ(describe("Dots1ForCausalLM")->spec.layers[2].attention.sliding_window, 0);
}

TEST(DescribeModel, DeepseekV2KeepsALatentAndChoosesByTheBestOfAGroup) {
  const auto d = describe("DeepseekV2ForCausalLM", R"({"attention_bias": true, "first_k_dense_replace": 1,
      "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 16.0,
      "num_attention_heads": 4, "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}})");
  ASSERT_TRUE(d) << d.status().message();
  const LayerSpec& layer = d->spec.layers[1];
  ASSERT_TRUE(layer.latent);
  EXPECT_EQ(layer.latent->heads, 4);
  EXPECT_EQ(layer.latent->q_rank, 20);
  EXPECT_TRUE(layer.latent->interleaved);
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(layer.latent->scale, mscale * mscale / 4.0) << "heads of 10 + 6, corrected for yarn";
  EXPECT_EQ(layer.kv.kind, KvSpec::Kind::kLatent);
  EXPECT_EQ(layer.kv.numbers(), 18) << "a latent and a rotated key, whatever the number of heads";
  EXPECT_EQ(d->spec.rope.rotary_dim, 6);
  const RouterSpec& router = layer.moe.router;
  EXPECT_EQ(router.scores, RouterSpec::Scores::kSoftmax);
  EXPECT_FALSE(router.normalise);
  EXPECT_FALSE(router.choice_bias);
  EXPECT_EQ(router.scale, 16.0);
  EXPECT_EQ(router.groups, 4);
  EXPECT_EQ(router.groups_kept, 2);
  EXPECT_EQ(router.group_best, 1);
  EXPECT_EQ(layer.moe.shared_ffn, 48);
  EXPECT_THAT(find(*d, "layers.0.attn.q_a.weight")->shape, ElementsAre(20, 32));
  EXPECT_THAT(find(*d, "layers.0.attn.q_b.weight")->shape, ElementsAre(64, 20));
  EXPECT_THAT(find(*d, "layers.0.attn.kv_a.weight")->shape, ElementsAre(18, 32));
  EXPECT_EQ(find(*d, "layers.0.attn.kv_a.weight")->source_name, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_THAT(find(*d, "layers.0.attn.kv_a_norm.weight")->shape, ElementsAre(12));
  EXPECT_THAT(find(*d, "layers.0.kv_b.weight")->shape, ElementsAre(96, 12));
  EXPECT_THAT(find(*d, "layers.0.attn.o.weight")->shape, ElementsAre(32, 56));
  for (const char* bias : {"q_a", "kv_a", "o"})
    EXPECT_NE(find(*d, std::string("layers.0.attn.") + bias + ".bias"), nullptr) << bias;
}

TEST(DescribeModel, WithoutARankQueriesAreMadeAtOnce) {
  const auto d = describe("DeepseekV2ForCausalLM", R"({"q_lora_rank": null, "n_group": 1, "topk_group": 1})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.layers[0].latent->q_rank, 0);
  EXPECT_EQ(d->spec.layers[0].latent->scale, 0.25);
  EXPECT_EQ(d->spec.moe().router.groups, 1);
  EXPECT_THAT(find(*d, "layers.0.attn.q.weight")->shape, ElementsAre(64, 32));
  EXPECT_EQ(find(*d, "layers.0.attn.q_a.weight"), nullptr);
  EXPECT_EQ(find(*d, "layers.0.attn.o.bias"), nullptr);
}

TEST(DescribeModel, DeepseekV3RotatesPairsOrHalves) {
  const auto d = describe("DeepseekV3ForCausalLM", R"({"first_k_dense_replace": 1, "num_nextn_predict_layers": 1})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_TRUE(d->spec.layers[0].latent->interleaved);
  EXPECT_EQ(d->spec.mtp_layers, 1);
  EXPECT_TRUE(d->spec.moe().router.choice_bias);
  EXPECT_TRUE(d->spec.moe().router.normalise);
  EXPECT_EQ(d->spec.moe().router.group_best, 2);
  const auto halves = describe("DeepseekV3ForCausalLM", R"({"rope_interleave": false})");
  ASSERT_TRUE(halves) << halves.status().message();
  EXPECT_FALSE(halves->spec.layers[0].latent->interleaved);
}

TEST(DescribeModel, Glm4MoeLiteNamesItsDenseLayers) {
  const auto dense = [](const std::string& patch) {
    const auto d = describe("Glm4MoeLiteForCausalLM", patch, {"first_k_dense_replace"});
    std::vector<bool> is;
    for (const LayerSpec& l : d->spec.layers) is.push_back(!l.moe_index);
    return is;
  };
  EXPECT_THAT(dense("{}"), ElementsAre(true, false, false));
  EXPECT_THAT(dense(R"({"mlp_layer_types": ["sparse", "dense", "sparse"]})"), ElementsAre(false, true, false));
}

TEST(DescribeModel, MiniMaxM2NormsTheWholeWidthAndNamesItsExpertsAsMixtralDoes) {
  const auto d = describe("MiniMaxM2ForCausalLM", R"({"rotary_dim": 4})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.rope.rotary_dim, 4);
  EXPECT_EQ(d->spec.rope.theta, 5e6);
  EXPECT_EQ(d->spec.layers[0].attention.qk_norm, AttentionSpec::QkNorm::kFullWidth);
  EXPECT_EQ(d->spec.moe().shared_ffn, 0);
  EXPECT_EQ(d->experts[0].down, "model.layers.0.block_sparse_moe.experts.0.w2.weight");
  EXPECT_EQ(find(*d, "layers.0.router.bias")->source_name, "model.layers.0.block_sparse_moe.e_score_correction_bias");
}

TEST(DescribeModel, GptOssHasSinksWindowsInTurnAndBiasesEverywhere) {
  const auto d = describe("GptOssForCausalLM", R"({"swiglu_limit": 5.0, "experts_per_token": 2})");
  ASSERT_TRUE(d) << d.status().message();
  std::vector<int64_t> windows;
  for (const LayerSpec& l : d->spec.layers) windows.push_back(l.attention.sliding_window);
  EXPECT_THAT(windows, ElementsAre(16, 0, 16));
  const AttentionSpec& a = d->spec.layers[0].attention;
  EXPECT_TRUE(a.sink_logits && a.qkv_bias && a.output_bias);
  EXPECT_EQ(find(*d, "layers.0.attn.sink_logits")->source_name, "model.layers.0.self_attn.sinks");
  EXPECT_THAT(find(*d, "layers.0.attn.sink_logits")->shape, ElementsAre(4));
  const MoeSpec& moe = d->spec.moe();
  EXPECT_EQ(moe.router.scores, RouterSpec::Scores::kSoftmax);
  EXPECT_TRUE(moe.router.normalise && moe.router.logit_bias && moe.expert.bias);
  EXPECT_FALSE(moe.router.choice_bias);
  EXPECT_EQ(moe.expert.activation, Activation::kClampedSwiglu);
  EXPECT_EQ(moe.expert.swiglu_limit, 5.0);
  EXPECT_EQ(moe.expert.swiglu_alpha, 1.702);
  EXPECT_EQ(find(*d, "layers.2.router.logit_bias")->source_name, "model.layers.2.mlp.router.bias");
  EXPECT_EQ(d->experts[5].gate, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(d->experts[5].up_bias, "model.layers.1.mlp.experts.gate_up_proj_bias");
  EXPECT_TRUE(d->storage.stacked && d->storage.transposed);
  EXPECT_EQ(d->spec.quantisation.method, Quantisation::Method::kNone);
  const auto named = describe("GptOssForCausalLM", R"({"attention_bias": false, "layer_types": ["full_attention",
      "sliding_attention", "full_attention"], "quantization_config": {"quant_method": "mxfp4",
      "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"]},
      "intermediate_size": 64})");
  ASSERT_TRUE(named) << named.status().message();
  EXPECT_EQ(named->spec.layers[0].attention.sliding_window, 0);
  EXPECT_EQ(named->spec.layers[1].attention.sliding_window, 16);
  EXPECT_FALSE(named->spec.layers[0].attention.qkv_bias);
  EXPECT_EQ(named->spec.quantisation.method, Quantisation::Method::kMxfp4);
  EXPECT_FALSE(named->storage.transposed) << "blocks lie along the reduction dimension";
}

TEST(DescribeModel, ErnieRotatesAdjacentPairsAndItsRouterIsF32) {
  const auto d = describe("Ernie4_5_MoeForCausalLM", R"({"moe_layer_start_index": 1, "moe_layer_end_index": -1,
      "num_nextn_predict_layers": 1})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_FALSE(d->spec.layers[0].moe_index);
  EXPECT_TRUE(d->spec.layers[1].moe_index);
  EXPECT_EQ(d->spec.layers[0].dense_ffn, 48);
  EXPECT_EQ(d->spec.mtp_layers, 1);
  EXPECT_EQ(d->spec.moe().shared_ffn, 48);
  EXPECT_EQ(d->spec.moe().router.scores, RouterSpec::Scores::kSoftmax);
  EXPECT_EQ(find(*d, "layers.0.attn.q.weight")->head_rows, 8);
  EXPECT_EQ(find(*d, "layers.0.attn.k.weight")->head_rows, 8);
  EXPECT_EQ(find(*d, "layers.0.attn.v.weight")->head_rows, 0);
  EXPECT_TRUE(find(*d, "layers.1.router.weight")->exact);
  const DenseTensor* bias = find(*d, "layers.1.router.bias");
  EXPECT_EQ(bias->source_name, "model.layers.1.mlp.moe_statics.e_score_correction_bias");
  EXPECT_THAT(bias->shape, ElementsAre(1, 4));
  const auto interval = describe("Ernie4_5_MoeForCausalLM",
                                 R"({"moe_layer_interval": 2, "moe_layer_start_index": 0, "moe_layer_end_index": 1})");
  ASSERT_TRUE(interval) << interval.status().message();
  EXPECT_FALSE(interval->spec.layers[0].moe_index || interval->spec.layers[2].moe_index);
  EXPECT_TRUE(interval->spec.layers[1].moe_index);
}

TEST(DescribeModel, GraniteScalesAndStacksItsExpertsInHalves) {
  const auto d = describe("GraniteMoeSharedForCausalLM", R"({"embedding_multiplier": 12.0, "logits_scaling": 6.0,
      "attention_multiplier": 0.015625, "residual_multiplier": 0.22, "shared_intermediate_size": 20})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.embedding_scale, 12.0);
  EXPECT_EQ(d->spec.residual_scale, 0.22);
  EXPECT_EQ(d->spec.logits_divisor, 6.0);
  EXPECT_EQ(d->spec.layers[0].attention.scale, 0.015625);
  EXPECT_EQ(d->spec.moe().router.scale, 0.22);
  EXPECT_EQ(d->experts[1].gate, "model.layers.0.block_sparse_moe.input_linear.weight");
  EXPECT_EQ(d->experts[1].down, "model.layers.0.block_sparse_moe.output_linear.weight");
  const ExpertView up = view_of(*d, d->experts[1], ExpertPart::kUp);
  EXPECT_THAT(up.shape, ElementsAre(4, 96, 32));
  EXPECT_EQ(up.first, 96 * 32 + 48 * 32) << "the second expert's second half";
  const DenseTensor* shared = find(*d, "layers.0.shared.up.weight");
  EXPECT_EQ(shared->source_name, "model.layers.0.shared_mlp.input_linear.weight");
  EXPECT_THAT(shared->source_shape(), ElementsAre(40, 32));
  EXPECT_EQ(shared->source_row, 20);
  EXPECT_EQ(describe("GraniteMoeForCausalLM")->spec.layers[0].attention.scale, 1.0) << "transformers' default";
}

TEST(DescribeModel, PhimoeMixesSparselyAndHasBiasesOfNorms) {
  const auto d = describe("PhimoeForCausalLM", R"({"lm_head_bias": true, "attention_bias": true, "sliding_window": 64,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [2, 3, 4, 5.5],
      "short_mscale": 1.2, "long_mscale": 1.3, "original_max_position_embeddings": 64}})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.norm, ModelSpec::Norm::kLayer);
  EXPECT_EQ(d->spec.moe().router.scores, RouterSpec::Scores::kSparseMixer);
  EXPECT_EQ(d->spec.moe().router.jitter, 0.01);
  EXPECT_EQ(d->spec.rope.scaling, RopeSpec::Scaling::kLongrope);
  EXPECT_THAT(d->spec.rope.long_factors, ElementsAre(2, 3, 4, 5.5));
  EXPECT_EQ(d->spec.rope.long_mscale, 1.3);
  EXPECT_EQ(d->spec.max_position, 256);
  EXPECT_EQ(d->spec.layers[2].attention.sliding_window, 64);
  EXPECT_EQ(find(*d, "head.bias")->source_name, "lm_head.bias");
  EXPECT_EQ(find(*d, "layers.1.post_attention_norm.bias")->source_name,
            "model.layers.1.post_attention_layernorm.bias");
  EXPECT_EQ(d->experts[0].gate, "model.layers.0.block_sparse_moe.experts.0.w1.weight");
}

TEST(DescribeModel, DbrxHasItsOwnNamesForEverything) {
  const auto d = describe("DbrxForCausalLM");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.layers[0].attention.clip_qkv, 8.0);
  EXPECT_EQ(d->spec.layers[0].attention.kv_heads, 2);
  EXPECT_EQ(d->spec.norm, ModelSpec::Norm::kLayer);
  EXPECT_FALSE(d->spec.norm_bias);
  EXPECT_TRUE(d->spec.moe().router.normalise);
  const DenseTensor* v = find(*d, "layers.1.attn.v.weight");
  EXPECT_EQ(v->source_name, "transformer.blocks.1.norm_attn_norm.attn.Wqkv.weight");
  EXPECT_EQ(v->source_row, 32 + 16);
  EXPECT_THAT(v->source_shape(), ElementsAre(64, 32));
  EXPECT_EQ(find(*d, "layers.0.post_attention_norm.weight")->source_name,
            "transformer.blocks.0.norm_attn_norm.norm_2.weight");
  EXPECT_EQ(find(*d, "embed.weight")->source_name, "transformer.wte.weight");
  const ExpertView gate = view_of(*d, d->experts[2], ExpertPart::kGate);
  EXPECT_THAT(gate.shape, ElementsAre(4 * 24, 32));
  EXPECT_EQ(gate.first, 2 * 24 * 32);
  const ExpertView down = view_of(*d, d->experts[2], ExpertPart::kDown);
  EXPECT_THAT(down.shape, ElementsAre(4 * 24, 32)) << "transposed";
  EXPECT_EQ(down.col_step, 32);
  EXPECT_EQ(down.row_step, 1);
}

TEST(DescribeModel, Qwen3NextsFusedProjectionsAreTakenApartByHeads) {
  const auto d = describe("Qwen3NextForCausalLM", R"({"layer_types": null, "full_attention_interval": 3})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.norm_offset, 1.0);
  ASSERT_TRUE(d->spec.layers[0].delta && d->spec.layers[1].delta && !d->spec.layers[2].delta);
  EXPECT_EQ(d->spec.layers[0].kv.kind, KvSpec::Kind::kNone);
  EXPECT_TRUE(d->spec.layers[2].attention.output_gate);
  EXPECT_EQ(d->spec.rope.rotary_dim, 2) << "a quarter of 8";
  const auto expect = [&](const char* name, int64_t rows, int64_t first, int64_t group, int64_t step) {
    const DenseTensor* t = find(*d, name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(std::tuple(t->shape[0], t->source_row, t->group_rows, t->group_step),
              std::tuple(rows, first, group, step))
        << name;
  };
  // Of a head of keys: 6 of q, 6 of k, 20 of v, 20 of z; 2 of b, 2 of a.
  expect("layers.0.attn.q.weight", 12, 0, 6, 52);
  expect("layers.0.attn.k.weight", 12, 6, 6, 52);
  expect("layers.0.attn.v.weight", 40, 12, 20, 52);
  expect("layers.0.attn.z.weight", 40, 32, 20, 52);
  expect("layers.0.delta.b.weight", 4, 0, 2, 4);
  expect("layers.0.delta.a.weight", 4, 2, 2, 4);
  expect("layers.2.attn.q.weight", 32, 0, 8, 16);
  expect("layers.2.attn.gate.weight", 32, 8, 8, 16);
  EXPECT_EQ(find(*d, "layers.0.attn.z.weight")->source_name, "model.layers.0.linear_attn.in_proj_qkvz.weight");
  EXPECT_EQ(find(*d, "layers.0.attn.z.weight")->source_shape(), (std::vector<int64_t>{104, 32}));
}

TEST(DescribeModel, Qwen35sTextIsASectionBesideAVisionTower) {
  const auto d = describe("Qwen3_5MoeForConditionalGeneration");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(find(*d, "layers.1.attn.v.weight")->source_name,
            "model.language_model.layers.1.linear_attn.in_proj_qkv.weight");
  EXPECT_EQ(find(*d, "layers.1.attn.v.weight")->source_row, 24);
  EXPECT_EQ(d->experts[5].gate, "model.language_model.layers.1.mlp.experts.gate_up_proj");
  ASSERT_EQ(d->spec.left_out.size(), 2u);
  EXPECT_STREQ(d->spec.left_out[1].prefix, "model.visual.");
  ModelDescription apart = *d;
  take_experts_apart(apart);
  EXPECT_EQ(apart.experts[5].up, "model.language_model.layers.1.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(apart.experts[5].down, "model.language_model.layers.1.mlp.experts.1.down_proj.weight");
  EXPECT_FALSE(apart.storage.stacked);
}

// What is null, and what is absent, differ: each as transformers takes it.
TEST(DescribeModel, NullIsNotAbsent) {
  const auto window = [](const std::string& patch) {
    const auto d = describe("Qwen3MoeForCausalLM", patch);
    return d ? d->spec.layers[0].attention.sliding_window : -1;
  };
  EXPECT_EQ(window(R"({"use_sliding_window": true})"), 4096);
  EXPECT_EQ(window(R"({"use_sliding_window": true, "sliding_window": null})"), 0);
  EXPECT_EQ(window(R"({"use_sliding_window": false, "sliding_window": 8, "max_window_layers": null})"), 0);
  EXPECT_TRUE(describe("Qwen2MoeForCausalLM", R"({"sliding_window": null})")) << "unused, so it may be null";
  const auto kv_heads = [](const char* architecture, bool null) {
    const std::vector<std::string> without =
        null ? std::vector<std::string>{} : std::vector<std::string>{"num_key_value_heads"};
    const auto d = describe(architecture,
                            R"({"hidden_size": 128, "num_attention_heads": 16, "num_key_value_heads": null})", without);
    if (!d) return int64_t{-1};
    return d->spec.layers[0].latent ? d->spec.layers[0].latent->heads : d->spec.layers[0].attention.kv_heads;
  };
  for (const std::string& name : known_architectures())
    if (name != "DbrxForCausalLM" && !name.ends_with("ForConditionalGeneration"))  // whose keys are elsewhere
      EXPECT_EQ(kv_heads(name.c_str(), true), 16) << name;
  EXPECT_EQ(kv_heads("MixtralForCausalLM", false), 8);
  EXPECT_EQ(kv_heads("Qwen3MoeForCausalLM", false), 4);
  EXPECT_EQ(kv_heads("OlmoeForCausalLM", false), 16);
  EXPECT_EQ(describe("MixtralForCausalLM", R"({"head_dim": null})")->spec.layers[0].attention.head_dim, 8);
}

TEST(DescribeModel, AnArchitecturesOwnEndTokensHoldWhereNoneAreNamed) {
  const auto mixtral = describe("MixtralForCausalLM");
  EXPECT_THAT(mixtral->spec.eos_ids, ElementsAre(2));
  EXPECT_EQ(mixtral->spec.bos_id, 1);
  const auto none = describe("MixtralForCausalLM", R"({"eos_token_id": null, "bos_token_id": null})");
  EXPECT_THAT(none->spec.eos_ids, ElementsAre());
  EXPECT_EQ(none->spec.bos_id, std::nullopt);
  EXPECT_THAT(describe("OlmoeForCausalLM", R"({"vocab_size": 50304})")->spec.eos_ids, ElementsAre(50279));
  EXPECT_THAT(describe("OlmoeForCausalLM")->spec.eos_ids, ElementsAre()) << "beyond the vocabulary";
  EXPECT_THAT(describe("Qwen3MoeForCausalLM")->spec.eos_ids, ElementsAre());
}

TEST(DescribeModel, StopsWhereGenerationConfigSays) {
  const std::string config = [] {
    auto c = tiny_config("MixtralForCausalLM");
    c["eos_token_id"] = 7, c["bos_token_id"] = 1;
    return c.dump();
  }();
  EXPECT_THAT(describe_model(config, "")->spec.eos_ids, ElementsAre(7));
  const auto d = describe_model(config, R"({"eos_token_id": [9, 8], "temperature": 0.7})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_THAT(d->spec.eos_ids, ElementsAre(9, 8));
  EXPECT_EQ(d->spec.bos_id, 1);
  EXPECT_THAT(describe_model(config, R"({"eos_token_id": 50279})")->spec.eos_ids,
              ElementsAre());  // beyond the vocabulary
}

}  // namespace
}  // namespace moestro::model
