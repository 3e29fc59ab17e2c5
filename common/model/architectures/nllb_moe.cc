#include <cmath>

#include "common/model/architectures/architecture.h"
#include "common/model/encoder_decoder_config.h"

namespace moestro::model {
namespace {

std::vector<bool> every_nth(ConfigReader& config, int64_t layers, std::string_view step_key) {
  const int64_t step = config.count_or(step_key, 4, kLayersMax, 0);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t i = 0; i < layers && step > 0; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  return sparse;
}

StackConfig read_stack(ConfigReader& config, const std::string& name, const ModelSpec& spec) {
  StackConfig stack;
  stack.layers = config.count(name + "_layers", kLayersMax);
  stack.ffn = config.count(name + "_ffn_dim", kFfnMax);
  AttentionSpec& a = stack.attention;
  a.heads = a.kv_heads = config.count(name + "_attention_heads", kHeadsMax);
  a.rope = false;
  a.qkv_bias = a.output_bias = true;
  stack.sparse = every_nth(config, stack.layers, name + "_sparse_step");
  config.number(name + "_layerdrop");  // in training
  if (config.failed()) return stack;
  if (spec.hidden % a.heads != 0)
    config.refuse(invalid_argument(config.where() + ": " + name + "_attention_heads must divide d_model"));
  a.head_dim = spec.hidden / a.heads;
  a.scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
  return stack;
}

/// What a router drops depends on all tokens of a batch; with a fraction of 1, it drops none.
void refuse_dropping(ConfigReader& config) {
  if (config.number_or("moe_eval_capacity_token_fraction", 1.0) != 1.0)
    config.refuse_unsupported("moe_eval_capacity_token_fraction",
                              "other than 1 is not supported: which tokens an expert drops would depend on what else "
                              "is in the batch");
  expect_text(config, "second_expert_policy", "all");
  // These say in what order tokens are dropped.
  for (const auto* key : {"normalize_router_prob_before_dropping", "batch_prioritized_routing"})
    config.flag_or(key, false);
  config.count_or("expert_capacity", 64, kPositionsMax);
}

}  // namespace

// NLLB-MoE (NLLB team 2022): two experts a token in every n-th layer, sinusoidal positions, LayerNorm and biases. Its
// experts' outputs are scaled as dropout in training has it.
void describe_nllb_moe(ConfigReader& config, ModelSpec& spec) {
  read_encoder_decoder(config, spec);
  expect_relu(config, "activation_function");
  for (const auto* key : {"dropout", "attention_dropout", "activation_dropout", "init_std"}) config.number(key);
  spec.norm = ModelSpec::Norm::kLayer;
  spec.norm_bias = true;
  spec.norm_eps = 1e-5;
  spec.mlp_bias = true;
  spec.sinusoidal_positions = true;
  spec.max_position = config.count("max_position_embeddings", kPositionsMax);
  if (config.flag_or("scale_embedding", true) && !config.failed())
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden));
  if (!config.failed() && !spec.pad_id)
    config.refuse(invalid_argument(config.where() + ": pad_token_id is missing; positions are counted from it"));
  if (!config.failed() && (spec.hidden % 2 != 0 || spec.hidden < 4))
    config.refuse_unsupported("d_model", "must be even and at least 4 for sinusoidal positions");

  const StackConfig encoder = read_stack(config, "encoder", spec), decoder = read_stack(config, "decoder", spec);
  // transformers 4 writes that of the encoder here, too.
  if (config.has("num_hidden_layers") && config.count("num_hidden_layers", kLayersMax) != encoder.layers)
    config.refuse(invalid_argument(config.where() + ": num_hidden_layers is not encoder_layers"));
  if (encoder.ffn != decoder.ffn)
    config.refuse_unsupported("decoder_ffn_dim", "other than encoder_ffn_dim is not supported: experts have one shape");
  MoeSpec moe = read_ungated_moe(config, 2, encoder.ffn, spec);
  moe.expert.bias = true;
  moe.router.normalise = true;
  const double dropout = config.number_or("moe_token_dropout", 0.2);
  if (dropout < 0 || dropout >= 1)
    config.refuse(invalid_argument(config.where() + ": moe_token_dropout must be within 0 and below 1"));
  moe.router.scale = 1.0 - dropout;
  refuse_dropping(config);
  spec.embedding_copies = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
  spec.left_out = {{"model.encoder.embed_positions.", "the encoder's table of positions"},
                   {"model.decoder.embed_positions.", "the decoder's table of positions"}};
  add_stacks(config, encoder, decoder, moe, spec);
}

}  // namespace moestro::model
