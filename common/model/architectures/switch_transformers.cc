#include <cmath>

#include "common/model/architectures/architecture.h"
#include "common/model/encoder_decoder_config.h"

namespace moestro::model {
namespace {

/// Distances have no last bucket, so the positions have no end; this is what Moestro has tables for.
constexpr int64_t kPositions = 32768;

/// transformers makes every (layers / sparse layers)-th layer sparse, from layer 1 on; with a step of 1, all.
std::vector<bool> every_nth(ConfigReader& config, int64_t layers, std::string_view count_key, std::string_view step_key,
                            int64_t standard) {
  const int64_t count = config.count_or(count_key, standard, kLayersMax, 0);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  if (config.failed()) return sparse;
  const int64_t step = count > 0 ? layers / count : layers;
  if (config.has(step_key) && config.count_or(step_key, step, kLayersMax, 0) != step)
    config.refuse(invalid_argument(config.where() + ": " + std::string(step_key) + " contradicts " +
                                   std::string(count_key) + ", which makes it " + std::to_string(step)));
  for (int64_t i = 0; i < layers && step > 0; ++i) sparse[static_cast<size_t>(i)] = step == 1 || i % step == 1;
  return sparse;
}

RelativeBias read_relative_bias(ConfigReader& config) {
  RelativeBias bias{.buckets = config.count_or("relative_attention_num_buckets", 32, 4096),
                    .reach = config.count_or("relative_attention_max_distance", 128, 1 << 16)};
  // An encoder has a half for each direction, and half of those are exact distances.
  if (bias.buckets % 4 != 0 || bias.reach <= bias.buckets / 2)
    config.refuse(invalid_argument(config.where() + ": relative_attention_num_buckets must be a multiple of 4, and "
                                   "relative_attention_max_distance more than half of it"));
  return bias;
}

}  // namespace

// Switch Transformers (Fedus et al. 2021): T5 with one expert a token in every n-th layer. What an expert has no room
// for in an encoder's pass gets nothing of it; a decoder takes its tokens one after another, and drops none.
void describe_switch_transformers(ConfigReader& config, ModelSpec& spec) {
  read_encoder_decoder(config, spec);
  expect_relu(config, "dense_act_fn");
  expect_relu(config, "feed_forward_proj");
  expect_flag(config, "is_gated_act", false);
  for (const auto* key : {"add_router_probs", "output_past", "batch_prioritized_routing"}) config.flag_or(key, false);
  config.text_or("router_type", "");
  if (config.count_or("num_selected_experts", 1, kExpertsMax) != 1)
    config.refuse_unsupported("num_selected_experts", "other than 1 is not supported");
  for (const auto* key : {"dropout_rate", "initializer_factor", "jitter_noise"}) config.number(key);  // in training
  config.count_or("n_positions", 512, kPositionsMax);  // of training
  spec.norm_eps = config.positive_or("layer_norm_epsilon", 1e-6);
  spec.max_position = kPositions;
  if (spec.tied_embeddings && !config.failed()) spec.logits_divisor = std::sqrt(static_cast<double>(spec.hidden));
  spec.relative_bias = read_relative_bias(config);

  AttentionSpec attention;
  attention.heads = attention.kv_heads = config.count("num_heads", kHeadsMax);
  attention.head_dim = config.count("d_kv", kHeadDimMax);
  attention.rope = false;
  attention.position_bias = true;
  attention.scale = 1.0;
  const int64_t ffn = config.count("d_ff", kFfnMax);
  MoeSpec moe = read_ungated_moe(config, 1, ffn, spec);
  moe.router.sequence_rows = config.count_or("expert_capacity", 64, kPositionsMax);

  StackConfig encoder{.layers = config.count("num_layers", kLayersMax), .attention = attention, .ffn = ffn};
  StackConfig decoder = encoder;
  if (!config.is_null("num_decoder_layers"))  // null: as many as the encoder
    decoder.layers = config.count_or("num_decoder_layers", 12, kLayersMax);
  encoder.sparse = every_nth(config, encoder.layers, "num_sparse_encoder_layers", "encoder_sparse_step", 3);
  decoder.sparse = every_nth(config, decoder.layers, "num_sparse_decoder_layers", "decoder_sparse_step", 3);
  spec.embedding_copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
  add_stacks(config, encoder, decoder, moe, spec);
}

}  // namespace moestro::model
