#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "common/model/architectures/architecture.h"
#include "common/model/config_keys.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

DeltaSpec read_delta(ConfigReader& config, double norm_eps) {
  DeltaSpec delta;
  delta.key_heads = config.count_or("linear_num_key_heads", 16, kHeadsMax);
  delta.value_heads = config.count_or("linear_num_value_heads", 32, kHeadsMax);
  delta.key_dim = config.count_or("linear_key_head_dim", 128, kHeadDimMax);
  delta.value_dim = config.count_or("linear_value_head_dim", 128, kHeadDimMax);
  delta.conv = config.count_or("linear_conv_kernel_dim", 4, kDeltaConvMax);
  delta.norm_eps = norm_eps;
  if (delta.value_heads % delta.key_heads != 0)
    config.refuse(invalid_argument(config.where() + ": linear_num_value_heads (" + std::to_string(delta.value_heads) +
                                   ") must be a multiple of linear_num_key_heads (" + std::to_string(delta.key_heads) +
                                   ")"));
  return delta;
}

// True where a layer has the gated delta rule: layer_types, or all but every full_attention_interval-th.
std::vector<bool> read_delta_layers(ConfigReader& config, int64_t layers) {
  const std::vector<std::string> types = config.texts("layer_types");
  const int64_t interval = config.count_or("full_attention_interval", 4, kLayersMax);
  std::vector<bool> delta;
  for (int64_t i = 0; i < layers && types.empty(); ++i) delta.push_back((i + 1) % interval != 0);
  for (const std::string& type : types) {
    delta.push_back(type == "linear_attention");
    if (!delta.back() && type != "full_attention")
      config.refuse_unsupported("layer_types",
                                in_quotes(type) + " is not supported (full_attention and linear_attention are)");
  }
  if (static_cast<int64_t>(delta.size()) != layers) {
    config.refuse(invalid_argument(config.where() + ": layer_types must name every layer"));
    delta.resize(static_cast<size_t>(layers));
  }
  if (std::ranges::all_of(delta, std::identity()))
    config.refuse(unsupported(config.where() + ": no layer has full_attention"));
  return delta;
}

struct Hybrid {
  DecoderBase base;
  DeltaSpec delta;
  std::vector<bool> delta_layers;
  MoeSpec moe;
  bool as_in_gguf = false;
};

// What both families have: three layers of the gated delta rule, then one of attention with an output gate; weights of
// norms as distances from 1; a shared expert with its gate. A config.json that was made of a GGUF file has a key of its
// own, weights_as_in_gguf: such files hold weights of norms as they multiply, and the decay without its logarithm.
Hybrid read_hybrid(ConfigReader& config, ModelSpec& spec) {
  config.count("head_dim", kHeadDimMax);  // transformers has 256 where it is missing
  Hybrid h;
  h.base = read_decoder(config, {.rope = {.partial_rotary = 0.25}, .kv_heads = 2}, spec);
  h.base.attention.qkv_bias = h.base.attention.output_bias = config.flag_or("attention_bias", false);
  h.base.attention.qk_norm = AttentionSpec::QkNorm::kPerHead;
  h.base.attention.output_gate = true;
  expect_flag(config, "attn_output_gate", true);
  expect_flag(config, "use_sliding_window", false);
  expect_text(config, "mamba_ssm_dtype", "float32");
  spec.left_out.push_back({"mtp.", "layers that predict further tokens"});
  h.delta = read_delta(config, spec.norm_eps);
  const int64_t mtp_layers = config.count_or("mtp_num_hidden_layers", 0, kLayersMax, 0);
  h.as_in_gguf = h.delta.decay_as_is = config.flag_or("weights_as_in_gguf", false);
  spec.norm_offset = h.as_in_gguf ? 0.0 : 1.0;
  if (h.as_in_gguf) spec.mtp_layers = mtp_layers;  // behind the others
  h.delta_layers = read_delta_layers(config, h.base.layers);
  h.moe = read_moe(config, "num_experts", "num_local_experts", "moe_intermediate_size", spec.hidden);
  h.moe.shared_ffn = config.count_or("shared_expert_intermediate_size", 512, kFfnMax);
  h.moe.shared_gate = true;
  return h;
}

void add_hybrid_layers(ConfigReader& config, const Hybrid& h, const std::vector<bool>& sparse, int64_t dense_ffn,
                       ModelSpec& spec) {
  add_layers(config, h.base, h.moe, sparse, dense_ffn, spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!h.delta_layers[i]) continue;
    spec.layers[i].attention = {};
    spec.layers[i].delta = h.delta;
    spec.layers[i].kv = {.kind = KvSpec::Kind::kNone};
  }
}

void read_qwen3_5_text(ConfigReader& config, ModelSpec& spec) {
  Hybrid h = read_hybrid(config, spec);
  if (!config.counts("mlp_only_layers", kLayersMax).empty())
    config.refuse_unsupported("mlp_only_layers", "other than [] is not supported");
  expect_flag(config, "norm_topk_prob", true);
  h.delta.in_turn = h.as_in_gguf;
  config.flag_or("mtp_use_dedicated_embeddings", false);
  h.moe.router.normalise = true;
  if (config.has("intermediate_size")) config.count("intermediate_size", kFfnMax);
  add_hybrid_layers(config, h, std::vector<bool>(static_cast<size_t>(h.base.layers), true), 0, spec);
}

// transformers writes quantization_config at the top, for both parts.
void read_outer_quantisation(ConfigReader& config, ModelSpec& spec) {
  constexpr std::string_view kKey = "quantization_config";
  if (!config.has(kKey)) return;
  const Quantisation outer = read_quantisation(config, false);
  if (spec.quantisation.method != Quantisation::Method::kNone && spec.quantisation != outer)
    config.refuse_unsupported(kKey, "differs from that in text_config; remove the wrong one");
  spec.quantisation = outer;
}

}  // namespace

void describe_qwen3_next(ConfigReader& config, ModelSpec& spec) {
  Hybrid h = read_hybrid(config, spec);
  h.moe.router.normalise = config.flag_or("norm_topk_prob", true);
  const int64_t dense_ffn = config.count_or("intermediate_size", 5632, kFfnMax);
  add_hybrid_layers(config, h, read_sparse_layers(config, h.base.layers), dense_ffn, spec);
}

// The text model alone, its settings at the top.
void describe_qwen3_5_moe_text(ConfigReader& config, ModelSpec& spec) { read_qwen3_5_text(config, spec); }

// With a vision tower, which is left out: the text model's settings are a section of their own.
void describe_qwen3_5_moe(ConfigReader& config, ModelSpec& spec) {
  const auto* section = config.object("text_config");
  if (section == nullptr)
    return config.refuse(invalid_argument(config.where() + ": text_config is missing"));
  ConfigReader text(*section, config.where() + ": text_config");
  text.texts("architectures");
  read_qwen3_5_text(text, spec);
  if (Status status = text.finish(is_harmless_key); !status.is_ok()) return config.refuse(std::move(status));
  read_outer_quantisation(config, spec);
  if (config.has("tie_word_embeddings")) spec.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  read_token_ids(config, spec);
  config.object("vision_config");
  for (const char* key : {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"})
    config.count_or(key, 0, kVocabMax, 0);
  expect_flag(config, "is_encoder_decoder", false);
  expect_zero(config, "chunk_size_feed_forward");
  spec.left_out.push_back({"model.visual.", "the vision tower"});
}

}  // namespace moestro::model
