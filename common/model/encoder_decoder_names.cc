#include "common/model/encoder_decoder_names.h"

namespace moestro::model {
namespace {

class StackMapper {
 public:
  StackMapper(const EncoderDecoderNames& names, ModelDescription& description) : names_(names), out_(description) {}

  void map() {
    const ModelSpec& spec = out_.spec;
    add("embed.weight", names_.embed, {spec.vocab, spec.hidden});
    add_norm("encoder_norm", names_.encoder.norm);
    add_norm("norm", names_.decoder.norm);
    if (spec.relative_bias) {
      add_bias_table("encoder_bias.weight", names_.encoder, spec.layers.front());
      add_bias_table("decoder_bias.weight", names_.decoder, spec.layers.back());
    }
    for (const LayerSpec& layer : spec.layers) add_layer(layer);
    here_ = there_ = "";
    if (!spec.tied_embeddings) add("head.weight", out_.head_name, {spec.vocab, spec.hidden});
  }

 private:
  void add(const std::string& name, const std::string& source, std::vector<int64_t> shape) {
    out_.dense.push_back({here_ + name, there_ + source, std::move(shape)});
  }

  void add_norm(const std::string& name, const std::string& source) {
    add(name + ".weight", source + ".weight", {hidden()});
    if (out_.spec.norm_bias) add(name + ".bias", source + ".bias", {hidden()});
  }

  void add_bias_table(const std::string& name, const StackNames& stack, const LayerSpec& layer) {
    add(name, std::string(stack.layers) + "0." + stack.bias_table,
        {out_.spec.relative_bias->buckets, layer.attention.heads});
  }

  void add_layer(const LayerSpec& layer) {
    const bool encodes = layer.stack == LayerSpec::Stack::kEncoder;
    const StackNames& stack = encodes ? names_.encoder : names_.decoder;
    const auto first = encodes ? 0 : static_cast<uint32_t>(out_.spec.encoder_layers());
    here_ = "layers." + std::to_string(layer.index.value) + ".";
    there_ = stack.layers + std::to_string(layer.index.value - first) + ".";
    add_norm("input_norm", names_.self_norm);
    add_norm("post_attention_norm", stack.mlp_norm);
    add_attention("attn.", names_.self_attention, layer.attention);
    if (layer.cross) {
      add_norm("cross_norm", names_.cross_norm);
      add_attention("cross.", names_.cross_attention, *layer.cross);
    }
    if (layer.moe_index)
      add_moe(stack, layer);
    else
      add_mlp(stack, layer.dense_ffn);
  }

  void add_attention(const std::string& name, const std::string& source, const AttentionSpec& a) {
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    add(name + "q.weight", source + names_.q + ".weight", {q, hidden()});
    add(name + "k.weight", source + names_.k + ".weight", {kv, hidden()});
    add(name + "v.weight", source + names_.v + ".weight", {kv, hidden()});
    add(name + "o.weight", source + names_.o + ".weight", {hidden(), q});
    if (a.qkv_bias) {
      add(name + "q.bias", source + names_.q + ".bias", {q});
      add(name + "k.bias", source + names_.k + ".bias", {kv});
      add(name + "v.bias", source + names_.v + ".bias", {kv});
    }
    if (a.output_bias) add(name + "o.bias", source + names_.o + ".bias", {hidden()});
  }

  void add_mlp(const StackNames& stack, int64_t ffn) {
    const std::string up = stack.mlp + std::string(names_.up), down = stack.mlp + std::string(names_.down);
    add("mlp.up.weight", up + ".weight", {ffn, hidden()});
    add("mlp.down.weight", down + ".weight", {hidden(), ffn});
    if (!out_.spec.mlp_bias) return;
    add("mlp.up.bias", up + ".bias", {ffn});
    add("mlp.down.bias", down + ".bias", {hidden()});
  }

  void add_moe(const StackNames& stack, const LayerSpec& layer) {
    const std::string router = stack.mlp + std::string(names_.router);
    add("router.weight", router + ".weight", {layer.moe.experts, hidden()});
    if (layer.moe.router.logit_bias) add("router.logit_bias", router + ".bias", {layer.moe.experts});
    for (uint32_t e = 0; e < layer.moe.experts; ++e) {
      const std::string expert = there_ + stack.mlp + names_.experts + std::to_string(e) + ".";
      ExpertTensors t{layer.index, *layer.moe_index, ExpertId(e), "", expert + names_.up + ".weight",
                      expert + names_.down + ".weight"};
      if (layer.moe.expert.bias) t.up_bias = expert + names_.up + ".bias", t.down_bias = expert + names_.down + ".bias";
      out_.experts.push_back(std::move(t));
    }
  }

  int64_t hidden() const { return out_.spec.hidden; }

  const EncoderDecoderNames& names_;
  ModelDescription& out_;
  std::string here_, there_;  // prefixes of the layer at hand: canonical, and in the checkpoint
};

}  // namespace

void map_encoder_decoder(const EncoderDecoderNames& names, ModelDescription& description) {
  StackMapper(names, description).map();
}

}  // namespace moestro::model
