#include "common/model/architectures/architecture.h"
#include "common/model/config_keys.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

constexpr int64_t kBlockPositions = 16;  // a chunk begins where a block of the KV cache does; attention checks it

// Where nothing is said, every fourth layer has no RoPE.
std::vector<bool> read_rope_layers(ConfigReader& config, int64_t layers) {
  const int64_t interval = config.count_or("no_rope_layer_interval", 4, kLayersMax);
  const std::vector<int64_t> named = config.counts("no_rope_layers", 1);
  if (!named.empty() && std::ssize(named) < layers)
    config.refuse(invalid_argument(config.where() + ": no_rope_layers must name every layer"));
  std::vector<bool> rope;
  for (int64_t i = 0; i < layers && !config.failed(); ++i)
    rope.push_back(named.empty() ? (i + 1) % interval != 0 : named[static_cast<size_t>(i)] != 0);
  return rope;
}

// Layers with RoPE see chunks, unless layer_types says otherwise.
std::vector<bool> read_chunked_layers(ConfigReader& config, const std::vector<bool>& rope, int64_t chunk) {
  std::vector<bool> chunked;
  for (const std::string& type : config.texts("layer_types")) {
    chunked.push_back(type == "chunked_attention");
    if (!chunked.back() && type != "full_attention")
      config.refuse_unsupported("layer_types",
                                in_quotes(type) + " is not supported (full_attention and chunked_attention are)");
    if (chunked.back() && chunk == 0)
      config.refuse(invalid_argument(config.where() + ": layers with chunked_attention need an attention_chunk_size"));
  }
  if (chunked.empty()) return rope;
  if (chunked.size() != rope.size() && !config.failed())
    config.refuse(invalid_argument(config.where() + ": layer_types must name every layer"));
  return chunked;
}

// Quantised checkpoints hold the experts apart, or FP8 in a form of their own.
void refuse_quantised(ConfigReader& config) {
  if (config.has("quantization_config"))
    config.refuse_unsupported("quantization_config",
                              "is not supported with Llama-4: pack the unquantised checkpoint, with --experts of fewer "
                              "bits if it is to be smaller, or a GGUF file");
}

int64_t read_chunk(ConfigReader& config) {
  constexpr std::string_view kKey = "attention_chunk_size";
  const int64_t chunk = config.is_null(kKey) ? 0 : config.count_or(kKey, 8192, kPositionsMax);
  if (chunk % kBlockPositions != 0)
    config.refuse_unsupported(kKey, "other than a multiple of 16 (a block of the KV cache) is not supported");
  return chunk;
}

void set_positions(ConfigReader& config, ModelSpec& spec) {
  const int64_t chunk = read_chunk(config);
  const std::vector<bool> rope = read_rope_layers(config, std::ssize(spec.layers));
  const std::vector<bool> chunked = read_chunked_layers(config, rope, chunk);
  const bool normed = config.flag_or("use_qk_norm", true);
  const bool tuned = config.truth_or("attn_temperature_tuning", true);  // older files have a number
  const AttentionSpec::Temperature temperature{config.positive_or("attn_scale", 0.1),
                                               config.positive_or("floor_scale", 8192.0)};
  for (size_t i = 0; i < spec.layers.size() && !config.failed(); ++i) {
    AttentionSpec& a = spec.layers[i].attention;
    a.rope = rope[i];
    a.chunk = chunked[i] ? chunk : 0;
    if (a.rope && normed) a.qk_norm = AttentionSpec::QkNorm::kRotatedHeads;
    if (!a.rope && tuned) a.temperature = temperature;
  }
}

std::vector<bool> read_moe_layers(ConfigReader& config, int64_t layers) {
  const int64_t step = config.count_or("interleave_moe_layer_step", 1, kLayersMax);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  const bool named = config.has("moe_layers");
  for (int64_t i = step - 1; i < layers && !named; i += step) sparse[static_cast<size_t>(i)] = true;
  for (const int64_t i : config.counts("moe_layers", kLayersMax))
    if (i < layers) sparse[static_cast<size_t>(i)] = true;
  return sparse;
}

}  // namespace

// Llama 4: a sigmoid whose weight multiplies the expert's input, a shared expert, dense layers between, and layers with
// RoPE that see a chunk between layers without RoPE that see everything.
void describe_llama4(ConfigReader& config, ModelSpec& spec) {
  refuse_quantised(config);
  DecoderBase base = read_decoder(
      config, {.rope = {.theta = 500000.0}, .norm_eps = 1e-5, .kv_heads = 8, .bos = 1, .eos = 2}, spec);
  spec.rope.pairs_adjacent = true;
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  expect_flag(config, "for_llm_compressor", false);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.router = {.scores = RouterSpec::Scores::kSigmoid, .normalise = false, .on_input = true};
  moe.shared_ffn = moe.expert.ffn;
  const int64_t dense_ffn = config.count_or("intermediate_size_mlp", 16384, kFfnMax);
  add_layers(config, base, moe, read_moe_layers(config, base.layers), dense_ffn, spec);
  set_positions(config, spec);
}

// The text model of one that sees images. Its config is a section, and the tower's tensors are left out.
void describe_llama4_text_part(ConfigReader& config, ModelSpec& spec) {
  const auto* text = config.object("text_config");
  if (text == nullptr) return config.refuse(invalid_argument(config.where() + ": text_config is missing"));
  refuse_quantised(config);
  ConfigReader own(*text, config.where() + ": text_config");
  own.texts("architectures");
  describe_llama4(own, spec);
  if (Status status = own.finish(is_harmless_key); !status.is_ok()) config.refuse(std::move(status));
  spec.left_out = {{"vision_model.", "the vision tower"}, {"multi_modal_projector.", "the vision tower"}};
  config.object("vision_config");
  expect_flag(config, "tie_word_embeddings", spec.tied_embeddings);
  for (const auto* key : {"boi_token_index", "eoi_token_index", "image_token_index"})
    config.count_or(key, 1, kVocabMax);
  read_token_ids(config, spec);
}

}  // namespace moestro::model
