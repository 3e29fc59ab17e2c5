#include "services/worker/engine/cross_attention.h"

#include <algorithm>

#include "services/worker/engine/layer_math.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {

CrossAttention::CrossAttention(const MathParts& parts, int64_t n) : p_(parts), buffers_(parts.memory) {
  int64_t q = 0, kv = 0;
  for (const model::LayerSpec& l : p_.spec.layers) {
    if (!l.cross) continue;
    q = std::max(q, l.cross->heads * l.cross->head_dim);
    kv = std::max(kv, l.cross->kv_heads * l.cross->head_dim);
  }
  const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
  normed_ = make(p_.spec.hidden), q_ = make(q), attended_ = make(q), k_ = make(kv), v_ = make(kv);
}

void CrossAttention::write_memory(const float* x) {
  const int64_t n = batch_->rows();
  norm_rows(p_.ops, p_.spec, x, n, p_.weights.encoder_norm(), p_.weights.encoder_norm_bias(), normed_);
  for (size_t layer = 0; layer < p_.spec.layers.size(); ++layer) {
    if (!p_.spec.layers[layer].cross) continue;
    const CrossWeights& w = p_.weights.layer(layer).cross;
    const kernels::GroupProduct products[] = {{&w.k, w.k_bias, k_}, {&w.v, w.v_bias, v_}};
    p_.ops.matmul_group(normed_, n, products);
    p_.ops.kv_write(attention_shape(*p_.spec.layers[layer].cross, {}), batch_->memory, k_, v_, p_.cache.layer(layer));
  }
}

void CrossAttention::compute(size_t layer, const MicroBatch& of, const float* h, const MixerOutput& out) {
  const model::AttentionSpec& a = *p_.spec.layers[layer].cross;
  const CrossWeights& w = p_.weights.layer(layer).cross;
  const auto [first, n] = of.rows;
  const int64_t width = a.heads * a.head_dim, at = first * width;
  p_.ops.matmul(h + first * p_.spec.hidden, n, w.q, w.q_bias, q_ + at);
  p_.ops.attention(attention_shape(a, {}), std::span(batch_->memory).subspan(of.sequences.first, of.sequences.count),
                   q_, nullptr, p_.cache.layer(layer), attended_);
  out.project(p_.ops, attended_ + at, first, n, w.o, w.o_bias);
}

}  // namespace moestro::engine
