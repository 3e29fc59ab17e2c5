#include "common/model/checkpoint_names.h"

namespace moestro::model {
namespace {

class Mapper {
 public:
  Mapper(const CheckpointNames& names, ModelDescription& description) : names_(names), out_(description) {}

  void map() {
    const ModelSpec& spec = out_.spec;
    out_.storage = names_.storage;
    if (spec.quantisation.method == Quantisation::Method::kMxfp4) out_.storage.transposed = false;
    add("embed.weight", names_.embed, {spec.vocab, spec.hidden});
    add_norm("norm", names_.norm);
    for (const LayerSpec& layer : spec.layers) {
      const std::string number = std::to_string(layer.index.value) + ".";
      here_ = "layers." + number;
      there_ = names_.layers + number;
      add_norm("input_norm", names_.input_norm);
      add_norm("post_attention_norm", names_.post_norm);
      if (layer.latent)
        add_latent(*layer.latent);
      else if (layer.delta)
        add_delta(*layer.delta);
      else
        add_attention(layer.attention);
      if (layer.moe_index)
        add_moe(layer);
      else
        add_mlp("mlp.", names_.dense_mlp, layer.dense_ffn);
    }
    here_ = there_ = "";
    const std::string head = names_.head;
    out_.head_name = head + ".weight";
    if (!spec.tied_embeddings) add("head.weight", out_.head_name, {spec.vocab, spec.hidden});
    if (spec.head_bias) add("head.bias", head + ".bias", {spec.vocab});
  }

 private:
  void add(const std::string& name, const std::string& source, std::vector<int64_t> shape) {
    out_.dense.push_back({here_ + name, there_ + source, std::move(shape)});
  }

  void add_exact(const std::string& name, const std::string& source, std::vector<int64_t> shape) {
    add(name, source, std::move(shape));
    out_.dense.back().exact = true;
  }

  void add_norm(const std::string& name, const std::string& source) {
    add(name + ".weight", source + ".weight", {hidden()});
    if (out_.spec.norm_bias) add(name + ".bias", source + ".bias", {hidden()});
  }

  // Of the tensor that was added last.
  void is_part(int64_t first_row, int64_t of_rows) {
    out_.dense.back().source_row = first_row;
    out_.dense.back().source_rows = of_rows;
  }
  /// The same, of so many rows at a time.
  void is_part_by_groups(int64_t first_row, int64_t rows, int64_t groups, int64_t of_rows) {
    is_part(first_row, groups * of_rows);
    out_.dense.back().group_rows = rows;
    out_.dense.back().group_step = of_rows;
  }
  void pairs_move_apart(const AttentionSpec& a) {
    if (out_.spec.rope.pairs_adjacent) out_.dense.back().head_rows = a.head_dim;
  }

  void add_attention(const AttentionSpec& a) {
    const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    const std::string from = names_.attention;
    const std::string output = from + names_.output;
    const auto weight = [&](const char* name, const char* source, int64_t rows, int64_t first) {
      add(std::string("attn.") + name + ".weight", from + (names_.fused_qkv ? names_.fused_qkv : source),
          {rows, hidden()});
      if (names_.fused_qkv) is_part(first, q + 2 * kv);
    };
    if (a.output_gate)
      add_gated_queries(a, "q_proj.weight", ".weight", {q, hidden()});
    else
      weight("q", "q_proj.weight", q, 0);
    pairs_move_apart(a);
    weight("k", "k_proj.weight", kv, q);
    pairs_move_apart(a);
    weight("v", "v_proj.weight", kv, q + kv);
    add("attn.o.weight", output + ".weight", {hidden(), q});
    if (a.qkv_bias) {
      if (a.output_gate)
        add_gated_queries(a, "q_proj.bias", ".bias", {q});
      else
        add("attn.q.bias", from + "q_proj.bias", {q});
      pairs_move_apart(a);
      add("attn.k.bias", from + "k_proj.bias", {kv});
      pairs_move_apart(a);
      add("attn.v.bias", from + "v_proj.bias", {kv});
    }
    if (a.output_bias) add("attn.o.bias", output + ".bias", {hidden()});
    if (has_norm_weights(a.qk_norm)) {
      const bool per_head = a.qk_norm == AttentionSpec::QkNorm::kPerHead;
      add("attn.q_norm.weight", "self_attn.q_norm.weight", {per_head ? a.head_dim : q});
      add("attn.k_norm.weight", "self_attn.k_norm.weight", {per_head ? a.head_dim : kv});
    }
    if (a.sink_logits) add("attn.sink_logits", "self_attn.sinks", {a.heads});
  }

  /// Rows of q_proj: of each head its query, then its gate.
  void add_gated_queries(const AttentionSpec& a, const char* source, const char* kind,
                         const std::vector<int64_t>& shape) {
    add(std::string("attn.gate") + kind, names_.attention + std::string(source), shape);
    is_part_by_groups(a.head_dim, a.head_dim, a.heads, 2 * a.head_dim);
    add(std::string("attn.q") + kind, names_.attention + std::string(source), shape);
    is_part_by_groups(0, a.head_dim, a.heads, 2 * a.head_dim);
  }

  void add_delta(const DeltaSpec& a) {
    const std::string from = "linear_attn.";
    const int64_t keys = a.keys(), values = a.values(), each = a.value_heads / a.key_heads,
                  of_head = 2 * a.key_dim + 2 * each * a.value_dim;
    // Of the fused tensors, each head of keys has `rows` rows from `first` on, of `all`.
    const auto part = [&](const char* name, const char* fused, const char* apart, int64_t first, int64_t rows,
                          int64_t all) {
      add(name, from + (names_.fused_delta ? fused : apart), {a.key_heads * rows, hidden()});
      if (names_.fused_delta) is_part_by_groups(first, rows, a.key_heads, all);
    };
    const char *const qkvz = "in_proj_qkvz.weight", *const qkv = "in_proj_qkv.weight";
    part("attn.q.weight", qkvz, qkv, 0, a.key_dim, of_head);
    if (!names_.fused_delta) is_part(0, 2 * keys + values);
    part("attn.k.weight", qkvz, qkv, a.key_dim, a.key_dim, of_head);
    if (!names_.fused_delta) is_part(keys, 2 * keys + values);
    part("attn.v.weight", qkvz, qkv, 2 * a.key_dim, each * a.value_dim, of_head);
    if (!names_.fused_delta) is_part(2 * keys, 2 * keys + values);
    part("attn.z.weight", qkvz, "in_proj_z.weight", 2 * a.key_dim + each * a.value_dim, each * a.value_dim, of_head);
    part("delta.b.weight", "in_proj_ba.weight", "in_proj_b.weight", 0, each, 2 * each);
    part("delta.a.weight", "in_proj_ba.weight", "in_proj_a.weight", each, each, 2 * each);
    add("delta.conv.weight", from + "conv1d.weight", {2 * keys + values, 1, a.conv});
    add("delta.a_log", from + "A_log", {a.value_heads});
    add("delta.dt_bias", from + "dt_bias", {a.value_heads});
    add("delta.norm.weight", from + "norm.weight", {a.value_dim});
    add("attn.o.weight", from + "out_proj.weight", {hidden(), values});
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
    const std::string router = block + names_.router;
    add("router.weight", router + ".weight", {layer.moe.experts, hidden()});
    out_.dense.back().exact = names_.exact_router;
    if (layer.moe.router.logit_bias) add("router.logit_bias", router + ".bias", {layer.moe.experts});
    if (layer.moe.router.choice_bias) {
      std::vector<int64_t> shape{layer.moe.experts};
      if (names_.router_bias_is_row) shape.insert(shape.begin(), 1);
      add_exact("router.bias", block + names_.router_bias, std::move(shape));
    }
    if (layer.moe.before_attention) {
      add("shared_norm.weight", "residual_layernorm.weight", {hidden()});
      add_mlp("shared.", "residual_mlp.", layer.moe.shared_ffn);
    } else if (layer.moe.shared_ffn > 0 && names_.fused_shared) {
      add_fused_mlp("shared.", std::string(names_.fused_shared) + ".", layer.moe.shared_ffn);
    } else if (layer.moe.shared_ffn > 0) {
      add_mlp("shared.", block + names_.shared_expert + ".", layer.moe.shared_ffn);
    }
    if (layer.moe.shared_gate) add("shared_gate.weight", block + "shared_expert_gate.weight", {1, hidden()});
    for (uint32_t e = 0; e < layer.moe.experts; ++e) add_expert(layer, there_ + block + names_.experts, ExpertId(e));
  }

  void add_expert(const LayerSpec& layer, std::string prefix, ExpertId expert) {
    const bool stacked = out_.storage.stacked;
    if (!stacked) prefix += std::to_string(expert.value) + ".";
    const char* const weight = stacked ? "" : ".weight";
    out_.experts.push_back({layer.index, *layer.moe_index, expert, prefix + names_.expert_gate + weight,
                            prefix + names_.expert_up + weight, prefix + names_.expert_down + weight});
    if (!layer.moe.expert.bias) return;
    const char* const bias = stacked ? "_bias" : ".bias";
    out_.experts.back().gate_bias = prefix + names_.expert_gate + bias;
    out_.experts.back().up_bias = prefix + names_.expert_up + bias;
    out_.experts.back().down_bias = prefix + names_.expert_down + bias;
  }

  void add_mlp(const std::string& name, const std::string& source, int64_t ffn) {
    add(name + "gate.weight", source + names_.mlp_gate + ".weight", {ffn, hidden()});
    add(name + "up.weight", source + names_.mlp_up + ".weight", {ffn, hidden()});
    add(name + "down.weight", source + names_.mlp_down + ".weight", {hidden(), ffn});
  }

  void add_fused_mlp(const std::string& name, const std::string& source, int64_t ffn) {
    add(name + "gate.weight", source + "input_linear.weight", {ffn, hidden()});
    is_part(0, 2 * ffn);
    add(name + "up.weight", source + "input_linear.weight", {ffn, hidden()});
    is_part(ffn, 2 * ffn);
    add(name + "down.weight", source + "output_linear.weight", {hidden(), ffn});
  }

  int64_t hidden() const { return out_.spec.hidden; }

  const CheckpointNames& names_;
  ModelDescription& out_;
  std::string here_, there_;  // prefixes of the layer at hand: canonical, and in the checkpoint
};

}  // namespace

void map_checkpoint(const CheckpointNames& names, ModelDescription& description) {
  if (names.stacks != nullptr) return map_encoder_decoder(*names.stacks, description);
  Mapper(names, description).map();
}

}  // namespace moestro::model
