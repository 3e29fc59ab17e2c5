#include "common/model/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/model/config_keys.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

void refuse_what_is_not_a_text_decoder(ConfigReader& config) {
  if (config.has("is_decoder")) config.flag_or("is_decoder", false);
  for (const auto* key : {"is_encoder_decoder", "add_cross_attention"}) expect_flag(config, key, false);
  expect_zero(config, "chunk_size_feed_forward");
  if (const std::string act = config.text_or("hidden_act", "silu"); act != "silu" && act != "swish")
    config.refuse_unsupported("hidden_act", in_quotes(act) + " is not supported (silu is)");
}

AttentionSpec read_attention(ConfigReader& config, const DecoderDefaults& defaults, int64_t hidden) {
  AttentionSpec attention;
  attention.heads = config.count("num_attention_heads", kHeadsMax);
  // null means "as many as heads", and is another thing than a key that is absent.
  if (config.is_null("num_key_value_heads"))
    attention.kv_heads = attention.heads;
  else
    attention.kv_heads =
        config.count_or("num_key_value_heads", defaults.kv_heads > 0 ? defaults.kv_heads : attention.heads, kHeadsMax);
  if (attention.heads % attention.kv_heads != 0)
    config.refuse(invalid_argument(config.where() + ": num_attention_heads (" + std::to_string(attention.heads) +
                                   ") must be a multiple of num_key_value_heads (" +
                                   std::to_string(attention.kv_heads) + ")"));
  if (!config.has("head_dim") && hidden % attention.heads != 0)
    config.refuse(invalid_argument(config.where() +
                                   ": hidden_size is not a multiple of num_attention_heads and there is no head_dim"));
  attention.head_dim =
      config.has("head_dim") ? config.count("head_dim", kHeadDimMax) : std::max<int64_t>(1, hidden / attention.heads);
  if (attention.head_dim % 2 != 0)
    config.refuse_unsupported("head_dim", "is odd, which rotary embedding cannot rotate");
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  return attention;
}

LatentSpec read_latent(ConfigReader& config) {
  LatentSpec latent;
  latent.heads = config.count("num_attention_heads", kHeadsMax);
  if (config.has("num_key_value_heads") && config.count("num_key_value_heads", kHeadsMax) != latent.heads)
    config.refuse_unsupported("num_key_value_heads", "other than num_attention_heads is not supported");
  latent.q_rank = config.is_null("q_lora_rank") ? 0 : config.count("q_lora_rank", kHiddenMax);
  latent.kv_rank = config.count("kv_lora_rank", kHiddenMax);
  latent.nope_dim = config.count("qk_nope_head_dim", kHeadDimMax);
  latent.rope_dim = config.count("qk_rope_head_dim", kHeadDimMax);
  latent.value_dim = config.count("v_head_dim", kHeadDimMax);
  latent.bias = config.flag_or("attention_bias", false);
  if (latent.rope_dim % 2 != 0)
    config.refuse_unsupported("qk_rope_head_dim", "is odd, which rotary embedding cannot rotate");
  // Saved by transformers, which computes them.
  const auto expect = [&](std::string_view key, int64_t value) {
    if (config.has(key) && config.count(key, 2 * kHeadDimMax) != value)
      config.refuse(
          invalid_argument(config.where() + ": " + std::string(key) + " contradicts the head's other widths"));
  };
  expect("head_dim", latent.rope_dim);
  expect("qk_head_dim", latent.nope_dim + latent.rope_dim);
  latent.scale = 1.0 / std::sqrt(static_cast<double>(latent.nope_dim + latent.rope_dim));
  return latent;
}

// YaRN corrects the scale of q.k by the square of what it would scale q and k by.
void scale_latent(ConfigReader& config, const RopeSpec& rope, LatentSpec& latent) {
  if (rope.scaling == RopeSpec::Scaling::kNone) return;
  if (rope.scaling != RopeSpec::Scaling::kYarn)
    return config.refuse_unsupported("rope_scaling", "other than yarn is not supported with latent attention");
  if (!rope.mscale_all_dim || rope.factor <= 1) return;
  const double mscale = 0.1 * *rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  latent.scale *= mscale * mscale;
}

// Where config.json has no such key, the architecture's own ids hold; null means that there is none.
void read_own_token_ids(ConfigReader& config, const DecoderDefaults& defaults, ModelSpec& spec) {
  const auto own = [&](std::string_view key, std::optional<int64_t> id) {
    return id && *id < spec.vocab && !config.has(key) && !config.is_null(key) ? std::optional(static_cast<TokenId>(*id))
                                                                              : std::nullopt;
  };
  if (const auto eos = own("eos_token_id", defaults.eos)) spec.eos_ids = {*eos};
  spec.bos_id = own("bos_token_id", defaults.bos);
  read_token_ids(config, spec);
}

}  // namespace

void expect_flag(ConfigReader& config, std::string_view key, bool harmless) {
  if (config.has(key) && config.flag_or(key, harmless) != harmless)
    config.refuse_unsupported(key, harmless ? "false is not supported" : "true is not supported");
}

void expect_zero(ConfigReader& config, std::string_view key) {
  if (config.has(key) && config.count_or(key, 0, kFfnMax, 0) != 0)
    config.refuse_unsupported(key, "other than 0 is not supported");
}

void expect_layer_types(ConfigReader& config, int64_t layers, bool sliding) {
  const std::vector<std::string> types = config.texts("layer_types");
  const std::string expected = sliding ? "sliding_attention" : "full_attention";
  if (!types.empty() && static_cast<int64_t>(types.size()) != layers)
    config.refuse(invalid_argument(config.where() + ": layer_types must name every layer"));
  for (const std::string& type : types)
    if (type != expected)
      config.refuse_unsupported("layer_types", in_quotes(type) + " is not supported where all layers have " +
                                                   in_quotes(expected) + " by the other settings");
}

std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t layers) {
  std::vector<bool> sliding;
  for (const std::string& type : config.texts("layer_types")) {
    sliding.push_back(type == "sliding_attention");
    if (!sliding.back() && type != "full_attention")
      config.refuse_unsupported("layer_types",
                                in_quotes(type) + " is not supported (full_attention and sliding_attention are)");
  }
  if (!sliding.empty() && static_cast<int64_t>(sliding.size()) != layers)
    config.refuse(invalid_argument(config.where() + ": layer_types must name every layer"));
  return sliding;
}

DecoderBase read_decoder(ConfigReader& config, const DecoderDefaults& defaults, ModelSpec& spec) {
  refuse_what_is_not_a_text_decoder(config);
  spec.quantisation = read_quantisation(config, defaults.mxfp4);
  spec.hidden = config.count("hidden_size", kHiddenMax);
  spec.vocab = config.count("vocab_size", kVocabMax);
  const int64_t max_position = config.count("max_position_embeddings", kPositionsMax);
  spec.norm_eps = config.positive_or("rms_norm_eps", defaults.norm_eps);
  spec.tied_embeddings = config.flag_or("tie_word_embeddings", defaults.tied);
  read_own_token_ids(config, defaults, spec);
  DecoderBase base;
  base.layers = config.count("num_hidden_layers", kLayersMax);
  if (!defaults.null_head_dim && config.is_null("head_dim")) config.count("head_dim", kHeadDimMax);  // says so
  if (defaults.latent)
    base.latent = read_latent(config);
  else
    base.attention = read_attention(config, defaults, spec.hidden);
  const int64_t rotated = base.latent ? base.latent->rope_dim : base.attention.head_dim;
  RopeDefaults rope = defaults.rope;
  rope.factor_scales_latents = defaults.latent;
  spec.rope = read_rope(config, rotated, max_position, rope);
  if (base.latent) scale_latent(config, spec.rope, *base.latent);
  spec.max_position = usable_positions(spec.rope, max_position);
  return base;
}

void read_token_ids(ConfigReader& config, ModelSpec& spec) {
  constexpr int64_t kIdMax = std::numeric_limits<TokenId>::max();
  if (config.has("eos_token_id")) spec.eos_ids.clear();
  for (const int64_t id : config.one_or_more("eos_token_id", kIdMax))
    if (id < spec.vocab) spec.eos_ids.push_back(static_cast<TokenId>(id));
  if (!config.has("bos_token_id")) return;
  const int64_t bos = config.count_or("bos_token_id", 0, kIdMax, 0);
  spec.bos_id = bos < spec.vocab ? std::optional(static_cast<TokenId>(bos)) : std::nullopt;
}

MoeSpec read_moe(ConfigReader& config, std::string_view experts_key, std::string_view other_key,
                 std::string_view ffn_key, int64_t hidden) {
  MoeSpec moe;
  const auto key = !config.has(experts_key) && config.has(other_key) ? other_key : experts_key;
  moe.experts = config.count(key, kExpertsMax);
  moe.top_k = config.count("num_experts_per_tok", kExpertsMax);
  if (moe.top_k > moe.experts)
    config.refuse(invalid_argument(config.where() + ": num_experts_per_tok (" + std::to_string(moe.top_k) +
                                   ") is above the number of experts (" + std::to_string(moe.experts) + ")"));
  moe.expert.hidden = hidden;
  moe.expert.ffn = config.count(ffn_key, kFfnMax);
  return moe;
}

MoeSpec read_grouped_moe(ConfigReader& config, int64_t hidden, const RouterSpec& defaults) {
  expect_text(config, "scoring_func", "sigmoid");
  expect_text(config, "topk_method", "noaux_tc");
  MoeSpec moe = read_shared_moe(config, hidden, defaults);
  moe.router.scores = RouterSpec::Scores::kSigmoid;
  moe.router.choice_bias = true;
  read_groups(config, moe);
  return moe;
}

MoeSpec read_shared_moe(ConfigReader& config, int64_t hidden, const RouterSpec& defaults) {
  MoeSpec moe = read_moe(config, "n_routed_experts", "num_local_experts", "moe_intermediate_size", hidden);
  moe.router = defaults;
  moe.router.scale = config.positive_or("routed_scaling_factor", defaults.scale);
  moe.shared_ffn = moe.expert.ffn * config.count("n_shared_experts", kExpertsMax);
  if (moe.shared_ffn > kFfnMax)
    config.refuse(invalid_argument(config.where() + ": n_shared_experts times moe_intermediate_size is above " +
                                   std::to_string(kFfnMax)));
  return moe;
}

void read_groups(ConfigReader& config, MoeSpec& moe) {
  moe.router.groups = config.count_or("n_group", moe.router.groups, kExpertsMax);
  moe.router.groups_kept = config.count_or("topk_group", moe.router.groups_kept, kExpertsMax);
  if (config.failed()) return;
  const int64_t width = moe.experts / moe.router.groups;
  if (moe.experts % moe.router.groups != 0 || width < moe.router.group_best)
    config.refuse(invalid_argument(config.where() + ": n_group (" + std::to_string(moe.router.groups) +
                                   ") must divide the " + std::to_string(moe.experts) +
                                   " experts into equal groups of at least " + std::to_string(moe.router.group_best)));
  if (moe.router.groups_kept > moe.router.groups || moe.router.groups_kept * width < moe.top_k)
    config.refuse(invalid_argument(config.where() + ": topk_group (" + std::to_string(moe.router.groups_kept) +
                                   ") must be at most n_group, and so many groups must hold num_experts_per_tok"));
}

void expect_text(ConfigReader& config, std::string_view key, std::string_view only) {
  if (const std::string value = config.has(key) ? config.text_or(key, "") : std::string(only); value != only)
    config.refuse_unsupported(key, in_quotes(value) + " is not supported (" + std::string(only) + " is)");
}

std::vector<bool> read_dense_first(ConfigReader& config, int64_t layers, int64_t standard) {
  const int64_t dense = config.count_or("first_k_dense_replace", standard, kLayersMax, 0);
  if (config.count_or("moe_layer_freq", 1, kLayersMax) != 1)
    config.refuse_unsupported("moe_layer_freq", "other than 1 is not supported");
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t i = dense; i < layers; ++i) sparse[static_cast<size_t>(i)] = true;
  return sparse;
}

std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t layers) {
  const int64_t step = config.count_or("decoder_sparse_step", 1, kLayersMax);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t i = 0; i < layers; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  for (const int64_t i : config.counts("mlp_only_layers", kLayersMax))
    if (i < layers) sparse[static_cast<size_t>(i)] = false;  // a layer beyond the last is one that was cut off
  return sparse;
}

void add_layers(ConfigReader& config, const DecoderBase& base, const MoeSpec& moe, const std::vector<bool>& sparse,
                int64_t dense_ffn, ModelSpec& spec) {
  if (config.failed()) return;
  uint32_t moe_layers = 0;
  for (size_t i = 0; i < sparse.size(); ++i) {
    LayerSpec layer;
    layer.index = LayerId(static_cast<uint32_t>(i));
    layer.attention = base.attention;
    layer.latent = base.latent;
    if (base.latent)
      layer.kv = {.kind = KvSpec::Kind::kLatent, .kv_rank = base.latent->kv_rank, .rope_dim = base.latent->rope_dim};
    else
      layer.kv = {KvSpec::Kind::kHeads, base.attention.kv_heads, base.attention.head_dim};
    if (sparse[i]) {
      layer.moe_index = MoeLayerId(moe_layers++);
      layer.moe = moe;
    } else {
      layer.dense_ffn = dense_ffn;
    }
    spec.layers.push_back(layer);
  }
  if (moe_layers == 0)
    config.refuse(unsupported(config.where() + ": no layer has experts; Moestro serves Mixture-of-Experts models"));
  if (moe_layers * moe.experts > kAllExpertsMax)
    config.refuse(unsupported(config.where() + ": more than " + std::to_string(kAllExpertsMax) + " experts in all"));
}

}  // namespace moestro::model
