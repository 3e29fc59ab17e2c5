// Multi-head latent attention (MLA): the cache holds a latent and a rotated key of each position, whatever the number
// of heads.

#include <algorithm>
#include <vector>

#include "services/worker/engine/sequence_mixer.h"

namespace moestro::engine {
namespace {

using model::LatentSpec;

struct LatentWidths {
  int64_t q_a = 0, q = 0, kv = 0, attended = 0;
};

LatentWidths widest_latents(const model::ModelSpec& spec) {
  LatentWidths w;
  for (const model::LayerSpec& l : spec.layers) {
    if (!l.latent) continue;
    const LatentSpec& a = *l.latent;
    w.q_a = std::max(w.q_a, a.q_rank);
    w.q = std::max(w.q, a.heads * (a.nope_dim + a.rope_dim));
    w.kv = std::max(w.kv, a.kv_rank + a.rope_dim);
    w.attended = std::max(w.attended, a.heads * a.value_dim);
  }
  return w;
}

class LatentAttention final : public SequenceMixer {
 public:
  LatentAttention(const MathParts& parts, int64_t n) : p_(parts), buffers_(parts.memory) {
    const LatentWidths w = widest_latents(p_.spec);
    const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
    q_a_ = make(w.q_a), q_ = make(w.q), kv_ = make(w.kv), attended_ = make(w.attended);
    cos_ = make(p_.spec.rope.rotary_dim / 2), sin_ = make(p_.spec.rope.rotary_dim / 2);
  }
  Status status() const override { return buffers_.status(); }

  void begin(const StepBatch& batch) override {
    batch_ = &batch;
    send(p_.memory, cos_, batch.cos);
    send(p_.memory, sin_, batch.sin);
  }

  void compute(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences,
               const float* h, const MixerOutput& out) override {
    const LatentSpec& a = *p_.spec.layers[layer].latent;
    const LayerWeights& w = p_.weights.layer(layer);
    const kernels::LatentShape& shape = p_.cache.latent_shape(layer);
    const auto [first, n] = of.rows;
    const auto eps = static_cast<float>(a.norm_eps);
    const float* const x = h + first * p_.spec.hidden;
    float* const q = q_ + first * shape.heads * shape.query_dim();
    float* const kv = kv_ + first * w.latent.kv_a.rows;
    float* const q_a = q_a_ + first * a.q_rank;
    const bool through_rank = a.q_rank > 0;
    const kernels::GroupProduct products[] = {
        {through_rank ? &w.latent.q_a : &w.q, w.latent.q_a_bias, through_rank ? q_a : q},
        {&w.latent.kv_a, w.latent.kv_a_bias, kv}};
    p_.ops.matmul_group(x, n, products);
    if (through_rank) {
      p_.ops.rms_norm(q_a, n, a.q_rank, w.latent.q_a_norm, eps, q_a);
      p_.ops.matmul(q_a, n, w.q, nullptr, q);
    }
    p_.ops.latent_write(shape, sequences, kv_, w.latent.kv_a_norm, eps, cos_, sin_, p_.cache.layer(layer));
    p_.ops.latent_attention(shape, sequences, q_, cos_, sin_, w.latent.kv_b, p_.cache.layer(layer), attended_);
    out.project(p_.ops, attended_ + first * w.o.cols, first, n, w.o, w.o_bias);
  }

 private:
  MathParts p_;
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  float *q_a_, *q_, *kv_, *attended_, *cos_, *sin_;
};

}  // namespace

std::unique_ptr<SequenceMixer> make_latent_attention(const MathParts& parts, int64_t step_tokens_max) {
  return std::make_unique<LatentAttention>(parts, step_tokens_max);
}

}  // namespace moestro::engine
