#include "common/model/checkpoint_names.h"

namespace moestro::model {
namespace {

class Mapper {
 public:
  Mapper(const CheckpointNames& names, ModelDescription& description) : names_(names), out_(description) {}

  void map() {
    const ModelSpec& spec = out_.spec;
    add("embed.weight", "model.embed_tokens.weight", {spec.vocab, spec.hidden});
    add("norm.weight", "model.norm.weight", {spec.hidden});
    for (const LayerSpec& layer : spec.layers) {
      here_ = "layers." + std::to_string(layer.index.value) + ".";
      there_ = "model." + here_;
      add_norms();
      if (layer.latent)
        add_latent(*layer.latent);
      else
        add_attention(layer.attention);
      if (layer.moe_index)
        add_moe(layer);
      else
        add_mlp("mlp.", "mlp.", layer.dense_ffn);
    }
    here_ = there_ = "";
    if (!spec.tied_embeddings) add("head.weight", "lm_head.weight", {spec.vocab, spec.hidden});
  }

 private:
  void add(const std::string& name, const std::string& source, std::vector<int64_t> shape) {
    out_.dense.push_back({here_ + name, there_ + source, std::move(shape)});
  }

  void add_exact(const std::string& name, const std::string& source, std::vector<int64_t> shape) {
    add(name, source, std::move(shape));
    out_.dense.back().exact = true;
  }

  void add_norms() {
    add("input_norm.weight", "input_layernorm.weight", {hidden()});
    add("post_attention_norm.weight", "post_attention_layernorm.weight", {hidden()});
  }

  void add_attention(const AttentionSpec& a) {
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    add("attn.q.weight", "self_attn.q_proj.weight", {q, hidden()});
    add("attn.k.weight", "self_attn.k_proj.weight", {kv, hidden()});
    add("attn.v.weight", "self_attn.v_proj.weight", {kv, hidden()});
    add("attn.o.weight", "self_attn.o_proj.weight", {hidden(), q});
    if (a.qkv_bias) {
      add("attn.q.bias", "self_attn.q_proj.bias", {q});
      add("attn.k.bias", "self_attn.k_proj.bias", {kv});
      add("attn.v.bias", "self_attn.v_proj.bias", {kv});
    }
    if (a.output_bias) add("attn.o.bias", "self_attn.o_proj.bias", {hidden()});
    if (a.qk_norm != AttentionSpec::QkNorm::kNone) {
      const bool per_head = a.qk_norm == AttentionSpec::QkNorm::kPerHead;
      add("attn.q_norm.weight", "self_attn.q_norm.weight", {per_head ? a.head_dim : q});
      add("attn.k_norm.weight", "self_attn.k_norm.weight", {per_head ? a.head_dim : kv});
    }
  }

  void add_latent(const LatentSpec& a) {
    const int64_t q = a.heads * (a.nope_dim + a.rope_dim), kv = a.kv_rank + a.rope_dim;
    if (a.q_rank == 0) {
      add("attn.q.weight", "self_attn.q_proj.weight", {q, hidden()});
    } else {
      add("attn.q_a.weight", "self_attn.q_a_proj.weight", {a.q_rank, hidden()});
      if (a.bias) add("attn.q_a.bias", "self_attn.q_a_proj.bias", {a.q_rank});
      add("attn.q_a_norm.weight", "self_attn.q_a_layernorm.weight", {a.q_rank});
      add("attn.q_b.weight", "self_attn.q_b_proj.weight", {q, a.q_rank});
    }
    add("attn.kv_a.weight", "self_attn.kv_a_proj_with_mqa.weight", {kv, hidden()});
    if (a.bias) add("attn.kv_a.bias", "self_attn.kv_a_proj_with_mqa.bias", {kv});
    add("attn.kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", {a.kv_rank});
    add("kv_b.weight", "self_attn.kv_b_proj.weight", {a.heads * (a.nope_dim + a.value_dim), a.kv_rank});
    add("attn.o.weight", "self_attn.o_proj.weight", {hidden(), a.heads * a.value_dim});
    if (a.bias) add("attn.o.bias", "self_attn.o_proj.bias", {hidden()});
  }

  void add_moe(const LayerSpec& layer) {
    const std::string block = std::string(names_.moe_block) + ".";
    add("router.weight", block + "gate.weight", {layer.moe.experts, hidden()});
    if (layer.moe.router.choice_bias) add_exact("router.bias", block + names_.router_bias, {layer.moe.experts});
    if (layer.moe.shared_ffn > 0) add_mlp("shared.", block + names_.shared_expert + ".", layer.moe.shared_ffn);
    if (layer.moe.shared_gate) add("shared_gate.weight", block + "shared_expert_gate.weight", {1, hidden()});
    for (uint32_t e = 0; e < layer.moe.experts; ++e) {
      const std::string prefix = there_ + block + "experts." + std::to_string(e) + ".";
      out_.experts.push_back({layer.index, *layer.moe_index, ExpertId(e), prefix + names_.expert_gate + ".weight",
                              prefix + names_.expert_up + ".weight", prefix + names_.expert_down + ".weight"});
    }
  }

  void add_mlp(const std::string& name, const std::string& source, int64_t ffn) {
    add(name + "gate.weight", source + "gate_proj.weight", {ffn, hidden()});
    add(name + "up.weight", source + "up_proj.weight", {ffn, hidden()});
    add(name + "down.weight", source + "down_proj.weight", {hidden(), ffn});
  }

  int64_t hidden() const { return out_.spec.hidden; }

  const CheckpointNames& names_;
  ModelDescription& out_;
  std::string here_, there_;  // prefixes of the layer at hand: canonical, and in the checkpoint
};

}  // namespace

void map_checkpoint(const CheckpointNames& names, ModelDescription& description) { Mapper(names, description).map(); }

}  // namespace moestro::model
