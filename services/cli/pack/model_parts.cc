#include "services/cli/pack/model_parts.h"

#include <algorithm>
#include <cstdio>

namespace moestro::cli {
namespace {

using model::AttentionSpec;
using model::ModelSpec;
using model::RopeSpec;

/// Words with commas between them.
class WordList {
 public:
  void add(const std::string& word) { text_ += (text_.empty() ? "" : ", ") + word; }
  void add_if(bool condition, const std::string& word) {
    if (condition) add(word);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

const char* scaling_name(RopeSpec::Scaling scaling) {
  switch (scaling) {
    case RopeSpec::Scaling::kNone: return "";
    case RopeSpec::Scaling::kLinear: return "RoPE scaled linearly";
    case RopeSpec::Scaling::kDynamic: return "RoPE scaled dynamically";
    case RopeSpec::Scaling::kYarn: return "YaRN";
    case RopeSpec::Scaling::kLlama3: return "RoPE scaled as Llama 3's";
    case RopeSpec::Scaling::kLongrope: return "LongRoPE";
  }
  return "";
}

bool has_rotated_norm(const model::LayerSpec& layer) {
  return layer.attention.qk_norm == AttentionSpec::QkNorm::kRotatedHeads;
}

int64_t widest(const ModelSpec& spec, int64_t AttentionSpec::*span) {
  int64_t most = 0;
  for (const model::LayerSpec& layer : spec.layers) most = std::max(most, layer.attention.*span);
  return most;
}

/// `text`, and in how many layers it holds; nothing if it holds in none.
template <class Holds>
void add_layers_that(const ModelSpec& spec, const Holds& holds, const std::string& text, WordList& words) {
  const auto count =
      std::ranges::count_if(spec.layers, [&](const model::LayerSpec& layer) { return holds(layer.attention); });
  if (count == 0) return;
  const bool all = count == std::ssize(spec.layers);
  words.add(text +
            (all ? "" : " in " + std::to_string(count) + " of " + std::to_string(spec.layers.size()) + " layers"));
}

/// Where layers are of two kinds: both, the one with states first.
std::string hybrid_text(const ModelSpec& spec) {
  const auto is_delta = [](const model::LayerSpec& layer) { return layer.delta.has_value(); };
  const auto delta = std::ranges::find_if(spec.layers, is_delta);
  const model::DeltaSpec& d = *delta->delta;
  ModelSpec others = spec;
  std::erase_if(others.layers, is_delta);
  return "in " + std::to_string(spec.layers.size() - others.layers.size()) + " of " +
         std::to_string(spec.layers.size()) + " layers a gated delta rule of " + std::to_string(d.value_heads) +
         " heads of " + std::to_string(d.value_dim) + " (" + std::to_string(d.key_heads) + " of keys of " +
         std::to_string(d.key_dim) + "), convolved over " + std::to_string(d.conv) + " positions" +
         (others.layers.empty() ? "" : "; in the others " + attention_text(others));
}

}  // namespace

std::string attention_text(const ModelSpec& spec) {
  if (spec.has_states()) return hybrid_text(spec);
  if (const auto& latent = spec.layers.front().latent)
    return std::to_string(latent->heads) + " heads over a latent of " + std::to_string(latent->kv_rank) + " and " +
           std::to_string(latent->rope_dim) + " rotated components";
  const AttentionSpec& a = spec.layers[static_cast<size_t>(spec.encoder_layers())].attention;
  WordList words;
  words.add(std::to_string(a.heads) + " heads of " + std::to_string(a.head_dim) + " (" + std::to_string(a.kv_heads) +
            " of keys)");
  words.add_if(a.qkv_bias || a.output_bias, "biases");
  words.add_if(a.qk_norm == AttentionSpec::QkNorm::kPerHead, "norms of heads");
  words.add_if(a.qk_norm == AttentionSpec::QkNorm::kFullWidth, "norms of q and k");
  words.add_if(std::ranges::any_of(spec.layers, has_rotated_norm), "norms of rotated heads");
  if (a.clip_qkv) words.add("q, k and v clamped to " + brief(*a.clip_qkv));
  words.add_if(a.sink_logits, "logits of sinks");
  words.add_if(a.output_gate, "an output gate");
  add_layers_that(spec, [](const AttentionSpec& each) { return each.sliding_window > 0; },
                  "a window of " + std::to_string(widest(spec, &AttentionSpec::sliding_window)), words);
  add_layers_that(spec, [](const AttentionSpec& each) { return each.chunk > 0; },
                  "chunks of " + std::to_string(widest(spec, &AttentionSpec::chunk)), words);
  if (!spec.is_encoder_decoder())
    add_layers_that(spec, [](const AttentionSpec& each) { return !each.rope; }, "no RoPE", words);
  add_layers_that(spec, [](const AttentionSpec& each) { return each.temperature.has_value(); },
                  "queries scaled by their position", words);
  if (spec.is_encoder_decoder())
    words.add("the first " + std::to_string(spec.encoder_layers()) +
              " layers are the encoder's, and the others attend to it");
  words.add_if(a.position_bias, "biases by distance");
  words.add_if(spec.sinusoidal_positions, "sinusoidal positions");
  words.add_if(a.rope && spec.rope.rotary_dim < a.head_dim,
               std::to_string(spec.rope.rotary_dim) + " components rotated");
  words.add_if(spec.rope.scaling != RopeSpec::Scaling::kNone, scaling_name(spec.rope.scaling));
  words.add_if(spec.norm == ModelSpec::Norm::kLayer, "LayerNorm before it");
  return words.text();
}

std::string router_text(const model::MoeSpec& moe) {
  const model::RouterSpec& r = moe.router;
  using Scores = model::RouterSpec::Scores;
  WordList words;
  words.add(r.scores == Scores::kSoftmax ? "softmax" : r.scores == Scores::kSigmoid ? "sigmoid" : "SparseMixer");
  words.add("top " + std::to_string(moe.top_k));
  words.add_if(r.groups > 1, std::to_string(r.groups_kept) + " of " + std::to_string(r.groups) + " groups");
  words.add_if(r.normalise && r.scores != Scores::kSparseMixer, "weights that sum to 1");
  words.add_if(r.scale != 1.0, "times " + brief(r.scale));
  words.add_if(r.on_input, "weights on the experts' inputs");
  words.add_if(r.choice_bias, "a bias for the choice");
  words.add_if(r.logit_bias, "a bias of the logits");
  words.add_if(r.sequence_rows > 0, "at most " + std::to_string(r.sequence_rows) +
                                        " tokens of a source for an expert, whose others get nothing of it");
  return words.text();
}

std::string expert_text(const model::MoeSpec& moe) {
  const model::ExpertSpec& e = moe.expert;
  WordList words;
  if (e.activation == model::Activation::kClampedSwiglu)
    words.add("clamped SwiGLU (limit " + brief(e.swiglu_limit) + ", alpha " + brief(e.swiglu_alpha) + ")");
  else
    words.add(e.is_gated() ? "SwiGLU" : "ReLU without a gate");
  words.add_if(e.bias, "biases in f32");
  words.add_if(moe.shared_ffn > 0, "a shared expert of ffn " + std::to_string(moe.shared_ffn) +
                                       (moe.shared_gate ? " with a gate" : ""));
  words.add_if(moe.before_attention, "the layer's input before attention, which the shared expert does not see");
  return words.text();
}

}  // namespace moestro::cli
