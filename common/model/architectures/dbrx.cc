#include <cmath>
#include <nlohmann/json.hpp>

#include "common/model/architectures/architecture.h"
#include "common/model/config_keys.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

const nlohmann::json& dbrx_section(ConfigReader& config, std::string_view key) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  const auto* found = config.object(key);
  if (found == nullptr) config.refuse(invalid_argument(config.where() + ": " + std::string(key) + " is missing"));
  return found == nullptr ? kEmpty : *found;
}

// transformers saves what all its configs have in the sections, too.
Status finish_section(ConfigReader& own) {
  expect_zero(own, "chunk_size_feed_forward");
  expect_flag(own, "is_encoder_decoder", false);
  own.texts("architectures");
  return own.finish(is_harmless_key);
}

AttentionSpec read_dbrx_attention(ConfigReader& config, int64_t hidden, double& theta) {
  AttentionSpec attention;
  attention.heads = config.count("n_heads", kHeadsMax);
  ConfigReader own(dbrx_section(config, "attn_config"), config.where() + ": attn_config");
  attention.kv_heads = own.count_or("kv_n_heads", 1, kHeadsMax);
  theta = own.positive("rope_theta");
  attention.clip_qkv = own.positive("clip_qkv");
  own.number("attn_pdrop");  // in training
  if (hidden % attention.heads != 0 || hidden / attention.heads % 2 != 0)
    own.refuse(invalid_argument(config.where() + ": d_model must be an even multiple of n_heads"));
  if (config.has("num_key_value_heads") && config.count("num_key_value_heads", kHeadsMax) != attention.kv_heads)
    own.refuse(invalid_argument(own.where() + ": kv_n_heads differs from num_key_value_heads"));
  if (attention.heads % attention.kv_heads != 0)
    own.refuse(invalid_argument(own.where() + ": kv_n_heads must divide n_heads"));
  attention.head_dim = std::max<int64_t>(2, hidden / attention.heads);
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  if (Status status = finish_section(own); !status.is_ok()) config.refuse(std::move(status));
  return attention;
}

MoeSpec read_dbrx_experts(ConfigReader& config, int64_t hidden) {
  ConfigReader own(dbrx_section(config, "ffn_config"), config.where() + ": ffn_config");
  MoeSpec moe;
  moe.experts = own.count_or("moe_num_experts", 4, kExpertsMax);
  moe.top_k = own.count_or("moe_top_k", 1, kExpertsMax);
  if (moe.top_k > moe.experts) own.refuse(invalid_argument(own.where() + ": moe_top_k is above moe_num_experts"));
  moe.expert.hidden = hidden;
  moe.expert.ffn = own.count_or("ffn_hidden_size", 3584, kFfnMax);
  if (own.has("hidden_size") && own.count("hidden_size", kHiddenMax) != hidden)
    own.refuse(invalid_argument(own.where() + ": hidden_size differs from d_model"));
  // The weights are divided by their p-norm: the 1-norm of what a softmax gives is its sum.
  moe.router.normalise = !own.is_null("moe_normalize_expert_weights");
  if (own.number("moe_normalize_expert_weights").value_or(1.0) != 1.0)
    own.refuse_unsupported("moe_normalize_expert_weights", "other than 1 or null is not supported");
  if (const auto* act = own.object("ffn_act_fn")) {
    ConfigReader unit(*act, own.where() + ": ffn_act_fn");
    expect_text(unit, "name", "silu");
    if (Status status = unit.finish(is_harmless_key); !status.is_ok()) own.refuse(std::move(status));
  }
  for (const auto* key : {"moe_jitter_eps", "moe_loss_weight"}) own.number(key);  // in training
  if (Status status = finish_section(own); !status.is_ok()) config.refuse(std::move(status));
  return moe;
}

}  // namespace

// DBRX: q, k and v in one tensor and clamped, LayerNorm without a bias, and names of its own for everything.
void describe_dbrx(ConfigReader& config, ModelSpec& spec) {
  spec.hidden = config.count("d_model", kHiddenMax);
  spec.vocab = config.count("vocab_size", kVocabMax);
  spec.norm = ModelSpec::Norm::kLayer;
  spec.norm_eps = 1e-5;
  expect_flag(config, "tie_word_embeddings", false);
  for (const auto* key : {"resid_pdrop", "emb_pdrop"}) config.number(key);  // in training
  read_token_ids(config, spec);
  DecoderBase base;
  base.layers = config.count("n_layers", kLayersMax);
  const int64_t max_position = config.count("max_seq_len", kPositionsMax);
  double theta = 0;
  base.attention = read_dbrx_attention(config, spec.hidden, theta);
  spec.rope = read_rope(config, base.attention.head_dim, max_position, {.theta = theta});
  if (spec.rope.theta != theta)
    config.refuse(invalid_argument(config.where() + ": rope_theta in attn_config and in rope_parameters differ"));
  spec.max_position = usable_positions(spec.rope, max_position);
  const MoeSpec moe = read_dbrx_experts(config, spec.hidden);
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
