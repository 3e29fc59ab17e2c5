#include <algorithm>
#include <iterator>

#include "store/pack/gguf_config.h"

namespace moestro::store {
namespace {

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
    {"mlp.down.weight", "ffn_down.weight"},        {"attn.q_a.weight", "attn_q_a.weight"},
    {"attn.q_a_norm.weight", "attn_q_a_norm.weight"}, {"attn.q_b.weight", "attn_q_b.weight"},
    {"attn.kv_a.weight", "attn_kv_a_mqa.weight"},  {"attn.kv_a_norm.weight", "attn_kv_a_norm.weight"},
    {"kv_b.weight", "attn_kv_b.weight"},           {"attn.sink_logits", "attn_sinks.weight"},
    {"router.logit_bias", "ffn_gate_inp.bias"},    {"input_norm.bias", "attn_norm.bias"},
    {"post_attention_norm.bias", "ffn_norm.bias"}, {"attn.gate.weight", "attn_q.weight"},
    {"attn.gate.bias", "attn_q.bias"},
};
/// What is another thing in a layer of the gated delta rule, or there alone.
constexpr std::pair<std::string_view, std::string_view> kOfDelta[] = {
    {"attn.q.weight", "attn_qkv.weight"},          {"attn.k.weight", "attn_qkv.weight"},
    {"attn.v.weight", "attn_qkv.weight"},          {"attn.z.weight", "attn_gate.weight"},
    {"attn.o.weight", "ssm_out.weight"},           {"delta.conv.weight", "ssm_conv1d.weight"},
    {"delta.a_log", "ssm_a"},                      {"delta.dt_bias", "ssm_dt.bias"},
    {"delta.norm.weight", "ssm_norm.weight"},
};
/// What is another thing in a family.
struct OwnName {
  std::string_view arch, part, name;
};
constexpr OwnName kOwnNames[] = {
    {"dbrx", "post_attention_norm.weight", "attn_output_norm.weight"},
    {"dbrx", "attn.q.weight", "attn_qkv.weight"},
    {"dbrx", "attn.k.weight", "attn_qkv.weight"},
    {"dbrx", "attn.v.weight", "attn_qkv.weight"},
    {"qwen3next", "delta.b.weight", "ssm_ba.weight"},
    {"qwen3next", "delta.a.weight", "ssm_ba.weight"},
    {"qwen35moe", "delta.b.weight", "ssm_beta.weight"},
    {"qwen35moe", "delta.a.weight", "ssm_alpha.weight"},
    {"arctic", "post_attention_norm.weight", "ffn_norm_exps.weight"},
    {"arctic", "shared_norm.weight", "ffn_norm.weight"},
    {"arctic", "shared.gate.weight", "ffn_gate.weight"},
    {"arctic", "shared.up.weight", "ffn_up.weight"},
    {"arctic", "shared.down.weight", "ffn_down.weight"},
};
constexpr const char* kVectors[] = {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"};
/// Families whose rotation takes the halves of a head in turn, and whose files have the rows of q and k in that order.
constexpr std::string_view kInterleaved[] = {"llama", "granitemoe", "arctic"};

const char* matrix_name(model::ExpertPart matrix) {
  return matrix == model::ExpertPart::kGate ? "ffn_gate" : matrix == model::ExpertPart::kUp ? "ffn_up" : "ffn_down";
}
std::string block_of(LayerId layer) { return "blk." + std::to_string(layer.value) + "."; }

}  // namespace

std::string gguf_tensor_name(const std::string& arch, const std::string& name, bool of_delta) {
  if (name == "embed.weight") return "token_embd.weight";
  if (name == "norm.weight") return "output_norm.weight";
  if (name == "norm.bias") return "output_norm.bias";
  if (name == "head.weight" || name == "head.bias") return "output" + name.substr(name.find('.'));
  constexpr std::string_view kLayers = "layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos) return name;
  const std::string_view part = std::string_view(name).substr(dot + 1);
  const auto* own = std::ranges::find_if(kOwnNames, [&](const OwnName& n) { return n.arch == arch && n.part == part; });
  const auto first = [](const auto& pair) { return pair.first; };
  const auto* found = std::ranges::find(kOfLayer, part, first);
  const auto* delta = std::ranges::find(kOfDelta, part, first);
  return "blk." + name.substr(kLayers.size(), dot - kLayers.size()) + "." +
         std::string(of_delta && delta != std::end(kOfDelta) ? delta->second
                     : own != std::end(kOwnNames)            ? own->name
                     : found == std::end(kOfLayer)           ? part
                                                             : found->second);
}

std::string gguf_experts_name(LayerId layer, model::ExpertPart matrix) {
  return block_of(layer) + matrix_name(matrix) + "_exps.weight";
}
std::string gguf_expert_name(LayerId layer, model::ExpertPart matrix, ExpertId expert) {
  return block_of(layer) + matrix_name(matrix) + "." + std::to_string(expert.value) + ".weight";
}

std::string gguf_biases_name(LayerId layer, model::ExpertPart matrix) {
  return block_of(layer) + matrix_name(matrix) + "_exps.bias";
}

bool has_interleaved_heads(const std::string& arch) {
  return std::ranges::find(kInterleaved, arch) != std::end(kInterleaved);
}

std::span<const char* const> gguf_vector_names() { return kVectors; }

}  // namespace moestro::store
