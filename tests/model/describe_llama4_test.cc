// Llama-4, Arctic and Solar Open.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/expert_storage.h"
#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using testing::ElementsAre;

TEST(DescribeModel, SolarOpenIsMadeOfKnownParts) {
  const auto d = describe("SolarOpenForCausalLM", R"({"attention_bias": true, "n_group": 2})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.rope.rotary_dim, 8);
  EXPECT_TRUE(d->spec.layers[0].attention.qkv_bias);
  EXPECT_FALSE(d->spec.layers[0].attention.output_bias);
  EXPECT_EQ(d->spec.layers[0].attention.qk_norm, AttentionSpec::QkNorm::kNone);
  EXPECT_EQ(d->spec.moe().router.scores, RouterSpec::Scores::kSigmoid);
  EXPECT_EQ(d->spec.moe().router.groups, 2);
  EXPECT_EQ(d->spec.moe().shared_ffn, 2 * 24);
}

TEST(DescribeModel, ArcticHasADenseMlpBesideItsExperts) {
  const auto d = describe("ArcticForCausalLM", R"({"parallel_attn_mlp_res": true, "moe_layer_frequency": 2})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.moe_layers(), 1);
  EXPECT_TRUE(d->spec.moe().before_attention);
  EXPECT_EQ(d->spec.moe().shared_ffn, 32) << "as wide as the model";
  EXPECT_EQ(d->spec.layers[0].dense_ffn, 48);
  EXPECT_EQ(find(*d, "layers.0.mlp.up.weight")->source_name, "model.layers.0.block_sparse_moe.mlp.w3.weight");
  EXPECT_EQ(find(*d, "layers.1.shared.down.weight")->source_name, "model.layers.1.residual_mlp.w2.weight");
  EXPECT_EQ(find(*d, "layers.1.shared_norm.weight")->source_name, "model.layers.1.residual_layernorm.weight");
  EXPECT_EQ(d->experts[1].gate, "model.layers.1.block_sparse_moe.experts.1.w1.weight");
  const auto serial = describe("ArcticForCausalLM", R"({"use_residual": false})");
  ASSERT_TRUE(serial) << serial.status().message();
  EXPECT_FALSE(serial->spec.moe().before_attention);
  EXPECT_EQ(serial->spec.moe().shared_ffn, 0);
}

TEST(DescribeModel, Llama4WeighsInputsAndMixesChunksWithLayersWithoutRope) {
  const auto d = describe("Llama4ForCausalLM", R"({"num_hidden_layers": 4, "interleave_moe_layer_step": 2})");
  ASSERT_TRUE(d) << d.status().message();
  const AttentionSpec &first = d->spec.layers[0].attention, &last = d->spec.layers[3].attention;
  EXPECT_TRUE(first.rope);
  EXPECT_EQ(first.chunk, 8192);
  EXPECT_EQ(first.qk_norm, AttentionSpec::QkNorm::kRotatedHeads);
  EXPECT_FALSE(first.temperature);
  EXPECT_FALSE(last.rope);
  EXPECT_EQ(last.chunk, 0);
  EXPECT_EQ(last.qk_norm, AttentionSpec::QkNorm::kNone);
  ASSERT_TRUE(last.temperature);
  EXPECT_EQ(last.temperature->floor, 8192.0);
  EXPECT_FALSE(d->spec.layers[2].moe_index);
  EXPECT_EQ(d->spec.layers[2].dense_ffn, 40);
  EXPECT_EQ(d->spec.moe_layers(), 2);
  EXPECT_TRUE(d->spec.moe().router.on_input);
  EXPECT_FALSE(d->spec.moe().router.normalise);
  EXPECT_EQ(d->spec.moe().shared_ffn, 48);
  EXPECT_EQ(find(*d, "layers.1.attn.k.weight")->head_rows, 8);
  EXPECT_EQ(find(*d, "layers.0.mlp.up.weight")->source_name, "model.layers.0.feed_forward.up_proj.weight");
  EXPECT_EQ(find(*d, "layers.1.shared.up.weight")->source_name,
            "model.layers.1.feed_forward.shared_expert.up_proj.weight");
  EXPECT_EQ(find(*d, "layers.1.attn.q_norm.weight"), nullptr);
  EXPECT_EQ(d->experts[0].gate, "model.layers.1.feed_forward.experts.gate_up_proj");
  const ExpertView up = view_of(*d, d->experts[1], ExpertPart::kUp);
  EXPECT_THAT(up.shape, ElementsAre(4, 32, 96)) << "[experts, in, gate and up]";
  EXPECT_EQ(up.first, 32 * 96 + 48);
  EXPECT_EQ(up.row_step, 1);
  EXPECT_EQ(up.col_step, 96);
}

TEST(DescribeModel, Llama4SaysWhichLayersAreWhat) {
  const auto d = describe("Llama4ForCausalLM", R"({"moe_layers": [1, 2, 9], "no_rope_layers": [0, 1, 1],
    "layer_types": ["chunked_attention", "full_attention", "chunked_attention"], "attention_chunk_size": 32,
    "use_qk_norm": false, "attn_temperature_tuning": 4, "floor_scale": 16, "attn_scale": 0.5})");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_FALSE(d->spec.layers[0].moe_index);
  EXPECT_TRUE(d->spec.layers[1].moe_index);
  const AttentionSpec& first = d->spec.layers[0].attention;
  EXPECT_FALSE(first.rope);
  EXPECT_EQ(first.chunk, 32);
  EXPECT_EQ(first.temperature->scale, 0.5);
  EXPECT_EQ(d->spec.layers[1].attention.chunk, 0);
  EXPECT_EQ(d->spec.layers[2].attention.chunk, 32);
  EXPECT_EQ(d->spec.layers[2].attention.qk_norm, AttentionSpec::QkNorm::kNone);
  const auto plain = describe("Llama4ForCausalLM", R"({"attn_temperature_tuning": 0, "attention_chunk_size": null,
    "no_rope_layers": []})");
  ASSERT_TRUE(plain) << plain.status().message();
  EXPECT_EQ(plain->spec.layers[0].attention.chunk, 0);
  for (const LayerSpec& layer : plain->spec.layers) EXPECT_FALSE(layer.attention.temperature);
}

TEST(DescribeModel, Llama4WithAVisionTowerIsItsTextModel) {
  const auto d = describe("Llama4ForConditionalGeneration");
  ASSERT_TRUE(d) << d.status().message();
  ASSERT_EQ(d->spec.left_out.size(), 2u);
  EXPECT_STREQ(d->spec.left_out[0].prefix, "vision_model.");
  EXPECT_STREQ(d->spec.left_out[1].prefix, "multi_modal_projector.");
  EXPECT_EQ(find(*d, "head.weight")->source_name, "language_model.lm_head.weight");
  EXPECT_EQ(find(*d, "layers.2.input_norm.weight")->source_name,
            "language_model.model.layers.2.input_layernorm.weight");
  EXPECT_EQ(d->experts[0].down, "language_model.model.layers.0.feed_forward.experts.down_proj");
}

}  // namespace
}  // namespace moestro::model
