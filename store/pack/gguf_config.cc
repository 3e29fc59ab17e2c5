#include "store/pack/gguf_config.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"
#include "store/pack/gguf_families.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using nlohmann::json;

void read_rope(GgufConfigReader& in, json& config) {
  config["rope_theta"] = in.number_if_any("rope.freq_base").value_or(10000.0);
  const auto factor = in.number_if_any("rope.scaling.factor");
  const std::string type = in.text_if_any("rope.scaling.type").value_or(factor ? "linear" : "none");
  const auto original = in.integer_if_any("rope.scaling.original_context_length");
  in.flag_if_any("rope.scaling.finetuned");
  in.expect("rope.scaling.yarn_attn_factor", in.number_if_any("rope.scaling.yarn_attn_factor"), 1);
  in.expect("rope.scaling.yarn_ext_factor", in.number_if_any("rope.scaling.yarn_ext_factor"), 1);
  const auto fast = in.number_if_any("rope.scaling.yarn_beta_fast"),
             slow = in.number_if_any("rope.scaling.yarn_beta_slow");
  if (type == "none") return;
  if (type != "linear" && type != "yarn")
    return in.refuse(
        unsupported("metadata " + in_quotes(in.full("rope.scaling.type")) + " is " + in_quotes(type) +
                    "; only none, linear and yarn are supported"));
  json scaling = {{"rope_type", type}};
  if (factor) scaling["factor"] = *factor;
  if (type == "yarn") {
    if (original) scaling["original_max_position_embeddings"] = *original;
    if (fast) scaling["beta_fast"] = *fast;
    if (slow) scaling["beta_slow"] = *slow;
  }
  config["rope_scaling"] = std::move(scaling);
}

/// Where a tensor says what each frequency of RoPE is divided by: of short and of long sequences, or of all of them
/// (Llama 3).
void read_factors(GgufConfigReader& in, const GgufVectors& vectors, json& config) {
  const auto of = [&](const char* name) {
    const auto found = vectors.find(name);
    return found == vectors.end() ? nullptr : &found->second;
  };
  constexpr const char *kAll = "rope_freqs.weight", *kShort = "rope_factors_short.weight",
                       *kLong = "rope_factors_long.weight";
  const std::vector<double>*all = of(kAll), *shorter = of(kShort), *longer = of(kLong);
  const auto attn_factor = in.number_if_any("rope.scaling.attn_factor");
  if (all == nullptr && shorter == nullptr && longer == nullptr)
    return in.expect("rope.scaling.attn_factor", attn_factor, 1);
  if (all != nullptr && (shorter != nullptr || longer != nullptr))
    return in.refuse(unsupported("tensor " + in_quotes(kAll) + " together with " +
                                 in_quotes(shorter != nullptr ? kShort : kLong) + " is not supported"));
  if (all == nullptr && (shorter == nullptr || longer == nullptr))
    return in.refuse(invalid_argument("tensor " + in_quotes(shorter == nullptr ? kShort : kLong) +
                                      " is missing, but " + in_quotes(shorter == nullptr ? kLong : kShort) +
                                      " is there"));
  if (config.contains("rope_scaling"))
    return in.refuse(unsupported("metadata " + in_quotes(in.full("rope.scaling.type")) + " together with the tensor " +
                                 in_quotes(all != nullptr ? kAll : kShort) + " is not supported"));
  if (all != nullptr) shorter = longer = all;
  const double mscale = attn_factor.value_or(1.0);
  const int64_t original = in.integer_if_any("rope.scaling.original_context_length")
                               .value_or(config["max_position_embeddings"].get<int64_t>());
  config["rope_scaling"] = {{"rope_type", "longrope"}, {"short_factor", *shorter}, {"long_factor", *longer},
                            {"short_mscale", mscale}, {"long_mscale", mscale},
                            {"original_max_position_embeddings", original}};
}

/// Tokens that end an answer: the end of the text, of a turn, of a message.
void read_token_ids(GgufConfigReader& in, json& config) {
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
void read_decoder(GgufConfigReader& in, bool has_latents, json& config) {
  const int64_t layers = in.integer("block_count"), mtp = in.integer_if_any("nextn_predict_layers").value_or(0);
  if (mtp < 0 || mtp >= layers)
    in.refuse(invalid_argument("metadata " + in_quotes(in.full("nextn_predict_layers")) + " is " +
                               std::to_string(mtp) + "; there are " + std::to_string(layers) + " layers in all"));
  config["num_hidden_layers"] = mtp < 0 || mtp >= layers ? 1 : layers - mtp;  // 1: refused above
  if (mtp > 0) config["num_nextn_predict_layers"] = mtp;
  const int64_t hidden = in.integer("embedding_length"), heads = in.integer("attention.head_count");
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = in.integer_if_any("attention.head_count_kv").value_or(heads);
  config["max_position_embeddings"] = in.integer("context_length");
  const auto eps = in.number_if_any("attention.layer_norm_rms_epsilon"),
             layer_eps = in.number_if_any("attention.layer_norm_epsilon");
  if (eps || layer_eps) config["rms_norm_eps"] = eps.value_or(layer_eps.value_or(0.0));
  else in.refuse(invalid_argument("metadata " + in_quotes(in.full("attention.layer_norm_rms_epsilon")) +
                                  " is missing"));
  if (!has_latents) {
    const int64_t head_dim = in.integer_if_any("attention.key_length").value_or(hidden / std::max<int64_t>(heads, 1));
    config["head_dim"] = head_dim;
    in.expect("attention.value_length", in.number_if_any("attention.value_length"), static_cast<double>(head_dim));
  }
  config["tie_word_embeddings"] = !in.has_tensor("output.weight");
  const int64_t vocab = in.dimension("token_embd.weight", 0);
  config["vocab_size"] = vocab;
  in.expect("vocab_size", in.number_if_any("vocab_size"), static_cast<double>(vocab));
  read_rope(in, config);
  read_token_ids(in, config);
}

Result<std::string> family_of(const GgufMetadata& metadata) {
  MOESTRO_ASSIGN_OR_RETURN(const auto arch, metadata.text("general.architecture"));
  if (!arch) return invalid_argument("metadata 'general.architecture' is missing");
  return *arch;
}

}  // namespace

std::string shortest_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

double as_written(double value) {
  if (std::abs(value) > static_cast<double>(FLT_MAX)) return value;
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), narrow);
  double shortest = value;
  std::from_chars(text.data(), end.ptr, shortest);
  return shortest;
}

Result<GgufConfig> gguf_config(const GgufHeader& header, const GgufVectors& vectors) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string arch, family_of(header.metadata));
  const auto families = gguf_families();
  const auto family = std::ranges::find(families, arch, &GgufFamily::arch);
  if (family == families.end()) {
    std::string known;
    for (const GgufFamily& f : families) known += (known.empty() ? "" : ", ") + std::string(f.arch);
    return unsupported("the family " + in_quotes(arch) + " is not supported as GGUF (" + known + " are)");
  }
  GgufConfigReader in(header, arch);
  json config = {{"architectures", {family->architecture}}};
  read_decoder(in, family->has_latents, config);
  read_factors(in, vectors, config);
  family->read(in, config);
  MOESTRO_RETURN_IF_ERROR(in.finish());
  return GgufConfig{config.dump(1) + "\n", in.remarks()};
}

}  // namespace moestro::store
