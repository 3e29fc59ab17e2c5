#include "store/pack/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using nlohmann::json;

constexpr int64_t kSigmoid = 2;  // expert_gating_func

/// A number that the file has as f32, in the decimal form that it was made from.
double as_written(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), narrow);
  double shortest = value;
  std::from_chars(text.data(), end.ptr, shortest);
  return shortest;
}

/// Reads "ARCH.key" and keeps the first error. finish() refuses those of the family that were not read.
class Reader {
 public:
  Reader(const GgufHeader& header, std::string arch) : header_(header), arch_(std::move(arch)) {
    for (const GgufTensor& t : header.tensors) tensors_[t.name] = &t;
  }

  std::optional<int64_t> integer_if_any(const std::string& key) {
    if (const auto* list = per_layer(key)) return *list;
    return value(key, header_.metadata.integer(full(key)));
  }
  int64_t integer(const std::string& key) {
    const auto found = integer_if_any(key);
    if (!found) refuse(invalid_argument("metadata " + in_quotes(full(key)) + " is missing"));
    return found.value_or(1);
  }
  std::optional<double> number_if_any(const std::string& key) {
    const auto found = value(key, header_.metadata.number(full(key)));
    return found ? std::optional(as_written(*found)) : std::nullopt;
  }
  std::optional<bool> flag_if_any(const std::string& key) { return value(key, header_.metadata.flag(full(key))); }
  std::optional<std::string> text_if_any(const std::string& key) {
    return value(key, header_.metadata.text(full(key)));
  }
  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  /// A dimension of a tensor; 0 if it is not there.
  int64_t dimension(const std::string& name, size_t index) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() || found->second->shape.size() <= index ? 0 : found->second->shape[index];
  }
  /// Of the first layer that has experts.
  int64_t expert_dimension(const char* stacked, size_t index) const {
    for (const auto& [name, tensor] : tensors_)
      if (name.ends_with(stacked) && tensor->shape.size() > index) return tensor->shape[index];
    return 0;
  }
  void refuse(Status error) {
    if (error_.is_ok()) error_ = std::move(error);
  }
  /// A setting with one value that is computed.
  void expect(const std::string& key, const std::optional<double>& found, double only) {
    if (found && *found != only)
      refuse(unsupported("metadata " + in_quotes(full(key)) + " is " + std::to_string(*found) + "; only " +
                         std::to_string(only) + " is supported"));
  }
  const GgufMetadata& metadata() const { return header_.metadata; }
  const std::string& arch() const { return arch_; }
  Status finish() {
    MOESTRO_RETURN_IF_ERROR(error_);
    for (const auto& [key, unused] : header_.metadata.values)
      if (key.starts_with(arch_ + ".") && !read_.contains(key))
        return unsupported("metadata " + in_quotes(key) + " is not supported for models of the family " + arch_);
    return Status::ok();
  }

 private:
  std::string full(const std::string& key) const { return arch_ + "." + key; }
  template <typename T>
  std::optional<T> value(const std::string& key, Result<std::optional<T>> found) {
    read_.insert(full(key));
    if (found) return *found;
    refuse(found.status());
    return std::nullopt;
  }
  /// A list with one number for each layer, all the same.
  const int64_t* per_layer(const std::string& key) {
    const auto found = header_.metadata.values.find(full(key));
    if (found == header_.metadata.values.end()) return nullptr;
    const auto* list = std::get_if<std::vector<int64_t>>(&found->second);
    if (list == nullptr) return nullptr;
    read_.insert(full(key));
    if (list->empty() || std::ranges::any_of(*list, [&](int64_t n) { return n != list->front(); })) {
      refuse(unsupported("metadata " + in_quotes(full(key)) + " differs from layer to layer"));
      return nullptr;
    }
    return &list->front();
  }

  const GgufHeader& header_;
  std::string arch_;
  std::map<std::string, const GgufTensor*> tensors_;
  std::set<std::string> read_;
  Status error_;
};

void read_rope(Reader& in, json& config) {
  config["rope_theta"] = in.number_if_any("rope.freq_base").value_or(10000.0);
  const auto factor = in.number_if_any("rope.scaling.factor");
  const std::string type = in.text_if_any("rope.scaling.type").value_or(factor ? "linear" : "none");
  const auto original = in.integer_if_any("rope.scaling.original_context_length");
  in.flag_if_any("rope.scaling.finetuned");
  in.expect("rope.scaling.attn_factor", in.number_if_any("rope.scaling.attn_factor"), 1);
  in.expect("rope.scaling.yarn_attn_factor", in.number_if_any("rope.scaling.yarn_attn_factor"), 1);
  in.expect("rope.scaling.yarn_ext_factor", in.number_if_any("rope.scaling.yarn_ext_factor"), 1);
  const auto fast = in.number_if_any("rope.scaling.yarn_beta_fast"),
             slow = in.number_if_any("rope.scaling.yarn_beta_slow");
  if (type == "none") return;
  if (type != "linear" && type != "yarn")
    return in.refuse(
        unsupported("rope.scaling.type " + in_quotes(type) + " is not supported (none, linear and yarn are)"));
  json scaling = {{"rope_type", type}};
  if (factor) scaling["factor"] = *factor;
  if (type == "yarn") {
    if (original) scaling["original_max_position_embeddings"] = *original;
    if (fast) scaling["beta_fast"] = *fast;
    if (slow) scaling["beta_slow"] = *slow;
  }
  config["rope_scaling"] = std::move(scaling);
}

/// Tokens that end an answer: the end of the text, of a turn, of a message.
void read_token_ids(Reader& in, json& config) {
  json ends = json::array();
  for (const auto* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = in.metadata().integer(key);
    if (!id) in.refuse(id.status());
    else if (*id && std::ranges::find(ends, json(**id)) == ends.end()) ends.push_back(**id);
  }
  config["eos_token_id"] = ends.empty() ? json() : ends;
  const auto bos = in.metadata().integer("tokenizer.ggml.bos_token_id");
  if (!bos) in.refuse(bos.status());
  else config["bos_token_id"] = *bos ? json(**bos) : json();
}

/// What every family has. The number of layers is without those after the last.
void read_decoder(Reader& in, json& config) {
  const int64_t layers = in.integer("block_count"), mtp = in.integer_if_any("nextn_predict_layers").value_or(0);
  if (mtp < 0 || mtp >= layers) in.refuse(invalid_argument("more layers predict further tokens than there are"));
  config["num_hidden_layers"] = mtp < 0 || mtp >= layers ? 1 : layers - mtp;  // 1: refused above
  if (mtp > 0) config["num_nextn_predict_layers"] = mtp;
  const int64_t hidden = in.integer("embedding_length"), heads = in.integer("attention.head_count");
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = in.integer_if_any("attention.head_count_kv").value_or(heads);
  config["max_position_embeddings"] = in.integer("context_length");
  if (const auto eps = in.number_if_any("attention.layer_norm_rms_epsilon")) config["rms_norm_eps"] = *eps;
  else in.refuse(invalid_argument("metadata 'attention.layer_norm_rms_epsilon' of the family is missing"));
  const int64_t head_dim = in.integer_if_any("attention.key_length").value_or(hidden / std::max<int64_t>(heads, 1));
  config["head_dim"] = head_dim;
  in.expect("attention.value_length", in.number_if_any("attention.value_length"), static_cast<double>(head_dim));
  config["tie_word_embeddings"] = !in.has_tensor("output.weight");
  const int64_t vocab = in.dimension("token_embd.weight", 0);
  config["vocab_size"] = vocab;
  in.expect("vocab_size", in.number_if_any("vocab_size"), static_cast<double>(vocab));
  read_rope(in, config);
  read_token_ids(in, config);
}

/// Of a family that rotates whole heads.
void expect_whole_rotation(Reader& in, const json& config) {
  in.expect("rope.dimension_count", in.number_if_any("rope.dimension_count"), config["head_dim"].get<double>());
}

int64_t ffn_of_experts(Reader& in) {
  return in.integer_if_any("expert_feed_forward_length").value_or(in.expert_dimension(".ffn_gate_exps.weight", 1));
}

void read_experts(Reader& in, json& config, const char* experts_key) {
  config[experts_key] = in.integer("expert_count");
  config["num_experts_per_tok"] = in.integer("expert_used_count");
}

void mixtral(Reader& in, json& config) {
  if (in.integer_if_any("expert_count").value_or(0) == 0)
    return in.refuse(unsupported("the model has no experts; Moestro serves Mixture-of-Experts models"));
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_local_experts");
  config["intermediate_size"] = in.integer("feed_forward_length");
  if (const auto window = in.integer_if_any("attention.sliding_window"); window && *window > 0)
    config["sliding_window"] = *window;
  else config["sliding_window"] = nullptr;
}

void qwen2_moe(Reader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_experts");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer_if_any("feed_forward_length").value_or(ffn_of_experts(in));
  config["shared_expert_intermediate_size"] =
      in.integer_if_any("expert_shared_feed_forward_length").value_or(in.expert_dimension(".ffn_up_shexp.weight", 0));
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(false);
  config["qkv_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void qwen3_moe(Reader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_experts");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer_if_any("feed_forward_length").value_or(ffn_of_experts(in));
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(true);
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void olmoe(Reader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_experts");
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(false);
  if (const auto clip = in.number_if_any("attention.clamp_kqv"); clip && *clip > 0) config["clip_qkv"] = *clip;
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

/// The router of DeepSeek-V3's kind.
void read_grouped(Reader& in, json& config) {
  read_experts(in, config, "n_routed_experts");
  config["n_shared_experts"] = in.integer("expert_shared_count");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["first_k_dense_replace"] = in.integer_if_any("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = in.number_if_any("expert_weights_scale").value_or(1.0);
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(false);
  config["n_group"] = in.integer_if_any("expert_group_count").value_or(1);
  config["topk_group"] = in.integer_if_any("expert_group_used_count").value_or(1);
  in.expect("expert_gating_func", in.number_if_any("expert_gating_func"), kSigmoid);
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void glm4_moe(Reader& in, json& config) {
  read_grouped(in, config);
  const double head_dim = config["head_dim"].get<double>();
  config["partial_rotary_factor"] = static_cast<double>(in.integer("rope.dimension_count")) / head_dim;
  config["use_qk_norm"] = in.has_tensor("blk.0.attn_q_norm.weight");
  if (!config.contains("num_nextn_predict_layers")) config["num_nextn_predict_layers"] = 0;
}

void dots1(Reader& in, json& config) {
  expect_whole_rotation(in, config);
  read_grouped(in, config);
  config["sliding_window"] = nullptr;
}

void minimax_m2(Reader& in, json& config) {
  read_experts(in, config, "num_local_experts");
  in.integer_if_any("feed_forward_length");
  config["intermediate_size"] = ffn_of_experts(in);
  config["rotary_dim"] = in.integer("rope.dimension_count");
  config["scoring_func"] = "sigmoid";
  in.expect("expert_gating_func", in.number_if_any("expert_gating_func"), kSigmoid);
}

struct Family {
  const char* arch;          ///< general.architecture
  const char* architecture;  ///< config.json
  void (*read)(Reader& in, json& config);
};
constexpr Family kFamilies[] = {
    {"llama", "MixtralForCausalLM", mixtral},      {"qwen2moe", "Qwen2MoeForCausalLM", qwen2_moe},
    {"qwen3moe", "Qwen3MoeForCausalLM", qwen3_moe}, {"olmoe", "OlmoeForCausalLM", olmoe},
    {"glm4moe", "Glm4MoeForCausalLM", glm4_moe},   {"dots1", "Dots1ForCausalLM", dots1},
    {"minimax-m2", "MiniMaxM2ForCausalLM", minimax_m2},
};

Result<std::string> family_of(const GgufMetadata& metadata) {
  MOESTRO_ASSIGN_OR_RETURN(const auto arch, metadata.text("general.architecture"));
  if (!arch) return invalid_argument("metadata 'general.architecture' is missing");
  return *arch;
}

/// "attn.q.weight" -> "attn_q.weight".
constexpr std::pair<std::string_view, std::string_view> kOfLayer[] = {
    {"input_norm.weight", "attn_norm.weight"},     {"post_attention_norm.weight", "ffn_norm.weight"},
    {"attn.q.weight", "attn_q.weight"},            {"attn.k.weight", "attn_k.weight"},
    {"attn.v.weight", "attn_v.weight"},            {"attn.o.weight", "attn_output.weight"},
    {"attn.q.bias", "attn_q.bias"},                {"attn.k.bias", "attn_k.bias"},
    {"attn.v.bias", "attn_v.bias"},                {"attn.o.bias", "attn_output.bias"},
    {"attn.q_norm.weight", "attn_q_norm.weight"},  {"attn.k_norm.weight", "attn_k_norm.weight"},
    {"router.weight", "ffn_gate_inp.weight"},      {"router.bias", "exp_probs_b.bias"},
    {"shared.gate.weight", "ffn_gate_shexp.weight"}, {"shared.up.weight", "ffn_up_shexp.weight"},
    {"shared.down.weight", "ffn_down_shexp.weight"}, {"shared_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.gate.weight", "ffn_gate.weight"},        {"mlp.up.weight", "ffn_up.weight"},
    {"mlp.down.weight", "ffn_down.weight"},
};

const char* matrix_name(model::ExpertPart matrix) {
  return matrix == model::ExpertPart::kGate ? "ffn_gate" : matrix == model::ExpertPart::kUp ? "ffn_up" : "ffn_down";
}
std::string block_of(LayerId layer) { return "blk." + std::to_string(layer.value) + "."; }

}  // namespace

Result<std::string> gguf_config_json(const GgufHeader& header) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string arch, family_of(header.metadata));
  const auto* family = std::ranges::find(kFamilies, arch, &Family::arch);
  if (family == std::end(kFamilies)) {
    std::string known;
    for (const Family& f : kFamilies) known += (known.empty() ? "" : ", ") + std::string(f.arch);
    return unsupported("the family " + in_quotes(arch) + " is not supported as GGUF (" + known + " are)");
  }
  Reader in(header, arch);
  json config = {{"architectures", {family->architecture}}};
  read_decoder(in, config);
  family->read(in, config);
  MOESTRO_RETURN_IF_ERROR(in.finish());
  return config.dump(1) + "\n";
}

std::string gguf_tensor_name(const std::string& name) {
  if (name == "embed.weight") return "token_embd.weight";
  if (name == "norm.weight") return "output_norm.weight";
  if (name == "head.weight") return "output.weight";
  constexpr std::string_view kLayers = "layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos) return name;
  const std::string_view part = std::string_view(name).substr(dot + 1);
  const auto* found = std::ranges::find(kOfLayer, part, [](const auto& pair) { return pair.first; });
  return "blk." + name.substr(kLayers.size(), dot - kLayers.size()) + "." +
         std::string(found == std::end(kOfLayer) ? part : found->second);
}

std::string gguf_experts_name(LayerId layer, model::ExpertPart matrix) {
  return block_of(layer) + matrix_name(matrix) + "_exps.weight";
}
std::string gguf_expert_name(LayerId layer, model::ExpertPart matrix, ExpertId expert) {
  return block_of(layer) + matrix_name(matrix) + "." + std::to_string(expert.value) + ".weight";
}

bool has_interleaved_heads(const GgufMetadata& metadata) {
  const auto arch = metadata.text("general.architecture");
  return arch && *arch == "llama";
}

}  // namespace moestro::store
