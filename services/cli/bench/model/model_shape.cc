#include "services/cli/bench/model/model_shape.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using nlohmann::ordered_json;
using Family = ModelShape::Family;

struct NamedShape {
  const char* name;
  ModelShape shape;
};

// The first three as scripts/make_bench_model.py has them; then those of published models.
constexpr NamedShape kShapes[] = {
    {"mixtral-mini", {Family::kMixtral, 16, 1024, 16, 4, 64, 3584, 8, 2}},
    {"qwen3moe-mini", {Family::kQwen3Moe, 24, 1024, 16, 4, 128, 384, 64, 8}},
    {"mixtral-12gb", {Family::kMixtral, 16, 2048, 32, 8, 64, 7168, 8, 2}},
    {"mixtral-8x7b", {Family::kMixtral, 32, 4096, 32, 8, 128, 14336, 8, 2}},
    {"qwen3-30b-a3b", {Family::kQwen3Moe, 48, 2048, 32, 4, 128, 768, 128, 8, 151936, 40960}},
    {"deepseek-v2-lite",
     {Family::kDeepseekV2, 27, 2048, 16, 16, 128, 1408, 64, 6, 102400, 163840, 512, 64, 2, 10944}},
    {"gpt-oss-20b", {Family::kGptOss, 24, 2880, 64, 8, 64, 2880, 32, 4, 201088, 131072}},
    {"qwen3-next-80b", {Family::kQwen3Next, 48, 2048, 16, 2, 256, 512, 512, 10, 151936, 262144}},
    {"switch-base-8", {Family::kSwitch, 12, 768, 12, 12, 64, 3072, 8, 1, 32128, 32768}},
    {"nllb-moe-54b", {Family::kNllb, 24, 2048, 16, 16, 128, 8192, 128, 2, 256206, 1024}},
    {"gpt-oss-120b", {Family::kGptOss, 36, 2880, 64, 8, 64, 2880, 128, 4, 201088, 131072}},
};

constexpr int64_t kEnd = kByteVocab - 1;

const char* family_name(Family family) {
  switch (family) {
    case Family::kMixtral: return "mixtral";
    case Family::kQwen3Moe: return "qwen3_moe";
    case Family::kDeepseekV2: return "deepseek_v2";
    case Family::kGptOss: return "gpt_oss";
    case Family::kQwen3Next: return "qwen3_next";
    case Family::kSwitch: return "switch_transformers";
    case Family::kNllb: return "nllb-moe";
  }
  return "";
}

constexpr int64_t kSwitchStep = 2, kNllbStep = 4;  ///< one of so many layers of a stack has experts

bool has_encoder(Family family) { return family == Family::kSwitch || family == Family::kNllb; }

/// Of a stack. One that is cut down to fewer layers than a step has one.
int64_t sparse_layers(const ModelShape& s) {
  return std::max<int64_t>(1, s.layers / (s.family == Family::kSwitch ? kSwitchStep : kNllbStep));
}

int64_t moe_layers(const ModelShape& s) {
  if (has_encoder(s.family)) return 2 * sparse_layers(s);
  return s.family == Family::kDeepseekV2 ? s.layers - 1 : s.layers;
}

/// What both families with an encoder say.
ordered_json two_stacks_config(const ModelShape& s, const char* architecture) {
  return {{"architectures", {architecture}},
          {"model_type", family_name(s.family)},
          {"is_encoder_decoder", true},
          {"vocab_size", s.vocab},
          {"d_model", s.hidden},
          {"num_experts", s.experts},
          {"pad_token_id", kEnd},
          {"eos_token_id", kEnd},
          {"decoder_start_token_id", kEnd},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"}};
}

ordered_json switch_config(const ModelShape& s) {
  ordered_json config = two_stacks_config(s, "SwitchTransformersForConditionalGeneration");
  config.update({{"d_kv", s.head_dim},
                 {"d_ff", s.ffn},
                 {"num_heads", s.heads},
                 {"num_layers", s.layers},
                 {"num_decoder_layers", s.layers},
                 {"num_sparse_encoder_layers", sparse_layers(s)},
                 {"num_sparse_decoder_layers", sparse_layers(s)}});
  return config;
}

ordered_json nllb_config(const ModelShape& s) {
  const int64_t step = std::min(kNllbStep, s.layers);
  ordered_json config = two_stacks_config(s, "NllbMoeForConditionalGeneration");
  config.update({{"max_position_embeddings", s.context},
                 {"encoder_layers", s.layers},
                 {"decoder_layers", s.layers},
                 {"encoder_attention_heads", s.heads},
                 {"decoder_attention_heads", s.heads},
                 {"encoder_ffn_dim", s.ffn},
                 {"decoder_ffn_dim", s.ffn},
                 {"encoder_sparse_step", step},
                 {"decoder_sparse_step", step}});
  return config;
}

ordered_json common_config(const ModelShape& s) {
  return {{"attention_dropout", 0.0},
          {"bos_token_id", kEnd},
          {"eos_token_id", kEnd},
          {"hidden_act", "silu"},
          {"initializer_range", 0.02},
          {"max_position_embeddings", s.context},
          {"output_router_logits", false},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling", nullptr},
          {"rope_theta", 1e6},
          {"router_aux_loss_coef", 0.02},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"vocab_size", s.vocab},
          {"hidden_size", s.hidden},
          {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.heads},
          {"num_key_value_heads", s.kv_heads},
          {"head_dim", s.head_dim},
          {"num_experts_per_tok", s.top_k}};
}

/// A code point below 2^11, in UTF-8.
std::string utf8(unsigned code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// GPT-2's printable stand-in for a byte: itself, or the next code point from 256 on.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> letters;
  unsigned spare = 256;
  for (unsigned b = 0; b < 256; ++b) {
    const bool shown = (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174;
    letters.push_back(utf8(shown ? b : spare++));
  }
  return letters;
}

}  // namespace

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& s : kShapes) names.emplace_back(s.name);
  return names;
}

std::optional<ModelShape> model_shape(const std::string& name) {
  for (const NamedShape& s : kShapes)
    if (s.name == name) return s.shape;
  return std::nullopt;
}

int64_t fixed_top_k(Family family) {
  return family == Family::kSwitch ? 1 : family == Family::kNllb ? 2 : 0;
}

uint64_t expert_bytes(const ModelShape& s, DType precision) {
  const auto matrix = [&](int64_t rows, int64_t cols) {
    return static_cast<uint64_t>(rows * row_bytes(precision, cols) + matrix_parameter_bytes(precision, rows, cols));
  };
  const uint64_t into = has_encoder(s.family) ? 1 : 2;  // with a gate
  return static_cast<uint64_t>(moe_layers(s) * s.experts) * (into * matrix(s.ffn, s.hidden) + matrix(s.hidden, s.ffn));
}

std::string shape_text(const ModelShape& s) {
  return printed(
      "%s, %ld layers of %ld experts (%ld a token), hidden %ld, ffn %ld, %ld heads of %ld (%ld of keys), vocabulary "
      "%ld",
      family_name(s.family), long{s.layers}, long{s.experts}, long{s.top_k},
      long{s.hidden}, long{s.ffn}, long{s.heads}, long{s.head_dim}, long{s.kv_heads}, long{s.vocab});
}

std::string config_json(const ModelShape& s) {
  if (s.family == Family::kSwitch) return switch_config(s).dump(2) + "\n";
  if (s.family == Family::kNllb) return nllb_config(s).dump(2) + "\n";
  ordered_json config = common_config(s);
  if (s.family == Family::kMixtral) {
    config.update({{"architectures", {"MixtralForCausalLM"}},
                   {"model_type", "mixtral"},
                   {"num_local_experts", s.experts},
                   {"router_jitter_noise", 0.0},
                   {"intermediate_size", s.ffn}});
  } else if (s.family == Family::kDeepseekV2) {
    config.update({{"architectures", {"DeepseekV2ForCausalLM"}},
                   {"model_type", "deepseek_v2"},
                   {"attention_bias", false},
                   {"first_k_dense_replace", 1},
                   {"head_dim", s.rope_dim},
                   {"intermediate_size", s.dense_ffn},
                   {"kv_lora_rank", s.kv_rank},
                   {"moe_intermediate_size", s.ffn},
                   {"n_routed_experts", s.experts},
                   {"n_shared_experts", s.shared_experts},
                   {"num_key_value_heads", s.heads},
                   {"q_lora_rank", nullptr},
                   {"qk_nope_head_dim", s.head_dim},
                   {"qk_rope_head_dim", s.rope_dim},
                   {"topk_method", "greedy"},
                   {"v_head_dim", s.head_dim}});
    config.erase("sliding_window");
  } else if (s.family == Family::kGptOss) {
    config.update({{"architectures", {"GptOssForCausalLM"}},
                   {"model_type", "gpt_oss"},
                   {"attention_bias", true},
                   {"intermediate_size", s.ffn},
                   {"num_local_experts", s.experts},
                   {"rope_theta", 150000},
                   {"rope_scaling",
                    {{"rope_type", "yarn"},
                     {"factor", 32.0},
                     {"beta_fast", 32.0},
                     {"beta_slow", 1.0},
                     {"truncate", false},
                     {"original_max_position_embeddings", 4096}}},
                   {"sliding_window", 128},
                   {"swiglu_limit", 7.0}});
  } else if (s.family == Family::kQwen3Next) {
    config.update({{"architectures", {"Qwen3NextForCausalLM"}},
                   {"model_type", "qwen3_next"},
                   {"full_attention_interval", std::min<int64_t>(4, s.layers)},
                   {"intermediate_size", s.ffn},
                   {"linear_num_key_heads", s.heads},
                   {"linear_num_value_heads", 2 * s.heads},
                   {"linear_key_head_dim", s.head_dim / 2},
                   {"linear_value_head_dim", s.head_dim / 2},
                   {"moe_intermediate_size", s.ffn},
                   {"norm_topk_prob", true},
                   {"num_experts", s.experts},
                   {"partial_rotary_factor", 0.25},
                   {"rms_norm_eps", 1e-6},
                   {"rope_theta", 1e7},
                   {"shared_expert_intermediate_size", s.ffn}});
    config.erase("sliding_window");
  } else {
    config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                   {"model_type", "qwen3_moe"},
                   {"attention_bias", false},
                   {"decoder_sparse_step", 1},
                   {"intermediate_size", 3 * s.hidden},
                   {"max_window_layers", s.layers},
                   {"mlp_only_layers", ordered_json::array()},
                   {"moe_intermediate_size", s.ffn},
                   {"norm_topk_prob", true},
                   {"num_experts", s.experts},
                   {"use_sliding_window", false}});
  }
  return config.dump(2) + "\n";
}

std::string generation_config_json() {
  return ordered_json{{"bos_token_id", kEnd}, {"eos_token_id", kEnd}}.dump(2) + "\n";
}

std::string byte_tokenizer_json(int64_t vocab) {
  ordered_json ids = ordered_json::object();
  for (const std::string& letter : byte_alphabet()) ids[letter] = ids.size();
  ids["<|endoftext|>"] = kEnd;
  for (int64_t i = kByteVocab; i < vocab; ++i)
    ids.get_ref<ordered_json::object_t&>().emplace_back("<|unused_" + std::to_string(i) + "|>", i);
  const ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const ordered_json end = {{"id", kEnd},      {"content", "<|endoftext|>"}, {"single_word", false}, {"lstrip", false},
                            {"rstrip", false}, {"normalized", false},        {"special", true}};
  const ordered_json model = {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", std::move(ids)},
                              {"merges", ordered_json::array()}};
  return ordered_json{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", ordered_json::array({end})},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", level},
                      {"post_processor", nullptr},
                      {"decoder", level},
                      {"model", model}}
             .dump() +
         "\n";
}

std::string tokenizer_config_json(const ModelShape& s) {
  return ordered_json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"eos_token", "<|endoftext|>"},
                      {"model_max_length", s.context},
                      {"clean_up_tokenization_spaces", false}}
             .dump(2) +
         "\n";
}

}  // namespace moestro::cli
