#include "common/model/encoder_decoder_config.h"

#include <limits>

#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

std::optional<TokenId> read_token(ConfigReader& config, std::string_view key, const ModelSpec& spec) {
  if (!config.has(key)) return std::nullopt;
  const int64_t id = config.count_or(key, 0, std::numeric_limits<TokenId>::max(), 0);
  if (!config.failed() && id >= spec.vocab)
    config.refuse(invalid_argument(config.where() + ": " + std::string(key) + " " + std::to_string(id) +
                                   " is outside the vocabulary of " + std::to_string(spec.vocab)));
  return static_cast<TokenId>(id);
}

void add_stack(const StackConfig& stack, LayerSpec::Stack which, const MoeSpec& moe, ModelSpec& spec) {
  auto moe_layers = static_cast<uint32_t>(spec.moe_layers());
  for (const bool sparse : stack.sparse) {
    LayerSpec layer;
    layer.stack = which;
    layer.index = LayerId(static_cast<uint32_t>(spec.layers.size()));
    layer.attention = stack.attention;
    layer.kv.kind = KvSpec::Kind::kNone;
    if (which == LayerSpec::Stack::kDecoder) {
      layer.kv = {KvSpec::Kind::kHeads, stack.attention.kv_heads, stack.attention.head_dim};
      layer.cross = stack.attention;
      layer.cross->position_bias = false;
    }
    if (sparse) {
      layer.moe_index = MoeLayerId(moe_layers++);
      layer.moe = moe;
    } else {
      layer.dense_ffn = stack.ffn;
    }
    spec.layers.push_back(layer);
  }
}

}  // namespace

void read_target_begin(ConfigReader& config, ModelSpec& spec) {
  if (const auto id = read_token(config, "decoder_start_token_id", spec)) spec.decoder_start_id = id;
  if (const auto id = read_token(config, "forced_bos_token_id", spec)) spec.forced_bos_id = id;
}

void read_encoder_decoder(ConfigReader& config, ModelSpec& spec) {
  expect_flag(config, "is_encoder_decoder", true);
  if (config.has("is_decoder")) config.flag_or("is_decoder", false);
  expect_flag(config, "add_cross_attention", false);
  expect_zero(config, "chunk_size_feed_forward");
  if (config.object("quantization_config") != nullptr)
    config.refuse_unsupported("quantization_config", "is not supported for encoder-decoder models");
  spec.hidden = config.count("d_model", kHiddenMax);
  spec.vocab = config.count("vocab_size", kVocabMax);
  spec.tied_embeddings = config.flag_or("tie_word_embeddings", true);
  spec.mlp_gated = false;
  spec.activation = Activation::kRelu;
  read_token_ids(config, spec);
  spec.pad_id = read_token(config, "pad_token_id", spec);
  read_target_begin(config, spec);
}

MoeSpec read_ungated_moe(ConfigReader& config, int64_t top_k, int64_t ffn, const ModelSpec& spec) {
  MoeSpec moe;
  moe.experts = config.count("num_experts", kExpertsMax);
  moe.top_k = top_k;
  if (!config.failed() && moe.top_k > moe.experts)
    config.refuse(invalid_argument(config.where() + ": num_experts must be at least " + std::to_string(top_k)));
  moe.router.normalise = false;
  moe.router.logit_bias = config.flag_or("router_bias", false);
  moe.expert = {.hidden = spec.hidden, .ffn = ffn, .matrices = 2, .activation = Activation::kRelu};
  expect_text(config, "router_dtype", "float32");
  config.flag_or("router_ignore_padding_tokens", false);  // there is no padding
  config.number("router_z_loss_coef");                    // in training
  return moe;
}

void expect_relu(ConfigReader& config, std::string_view key) { expect_text(config, key, "relu"); }

void add_stacks(ConfigReader& config, const StackConfig& encoder, const StackConfig& decoder, const MoeSpec& moe,
                ModelSpec& spec) {
  if (config.failed()) return;
  add_stack(encoder, LayerSpec::Stack::kEncoder, moe, spec);
  add_stack(decoder, LayerSpec::Stack::kDecoder, moe, spec);
  const int64_t moe_layers = spec.moe_layers();
  if (moe_layers == 0)
    config.refuse(unsupported(config.where() + ": no layer has experts; Moestro serves Mixture-of-Experts models"));
  if (moe_layers * moe.experts > kAllExpertsMax)
    config.refuse(unsupported(config.where() + ": more than " + std::to_string(kAllExpertsMax) + " experts in all"));
}

}  // namespace moestro::model
