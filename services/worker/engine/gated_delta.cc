// The gated delta rule: linear attention, whose state is of a sequence and not of its positions.

#include <algorithm>

#include "services/worker/engine/sequence_mixer.h"

namespace moestro::engine {
namespace {

using model::DeltaSpec;

struct DeltaWidths {
  int64_t keys = 0, values = 0, heads = 0;
};

DeltaWidths widest_deltas(const model::ModelSpec& spec) {
  DeltaWidths w;
  for (const model::LayerSpec& l : spec.layers) {
    if (!l.delta) continue;
    w.keys = std::max(w.keys, l.delta->keys());
    w.values = std::max(w.values, l.delta->values());
    w.heads = std::max(w.heads, l.delta->value_heads);
  }
  return w;
}

class GatedDelta final : public SequenceMixer {
 public:
  GatedDelta(const MathParts& parts, int64_t n) : p_(parts), buffers_(parts.memory) {
    const DeltaWidths w = widest_deltas(p_.spec);
    const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
    q_ = make(w.keys), k_ = make(w.keys), v_ = make(w.values), z_ = make(w.values), out_ = make(w.values);
    a_ = make(w.heads), b_ = make(w.heads);
  }
  Status status() const override { return buffers_.status(); }
  void begin(const StepBatch& /*batch*/) override {}

  void compute(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences,
               const float* h, const MixerOutput& out) override {
    const DeltaSpec& spec = *p_.spec.layers[layer].delta;
    const LayerWeights& w = p_.weights.layer(layer);
    const auto [first, n] = of.rows;
    const float* const x = h + first * p_.spec.hidden;
    const int64_t at_keys = first * spec.keys(), at_values = first * spec.values(), at_heads = first * spec.value_heads;
    const kernels::GroupProduct products[] = {{&w.q, nullptr, q_ + at_keys},
                                              {&w.k, nullptr, k_ + at_keys},
                                              {&w.v, nullptr, v_ + at_values},
                                              {&w.delta.z, nullptr, z_ + at_values}};
    p_.ops.matmul_group(x, n, products);
    // What a state forgets and takes in adds up over all positions.
    const kernels::GroupProduct gates[] = {{&w.delta.a, nullptr, a_ + at_heads}, {&w.delta.b, nullptr, b_ + at_heads}};
    p_.ops.matmul_group(x, n, gates, kernels::Activations::kExact);
    p_.ops.gated_delta(delta_shape(spec), sequences,
                       {.q = q_, .k = k_, .v = v_, .a = a_, .b = b_, .conv = w.delta.conv, .a_log = w.delta.a_log,
                        .dt_bias = w.delta.dt_bias},
                       p_.states.layer(layer), out_);
    p_.ops.gated_norm(out_ + at_values, n * spec.value_heads, spec.value_dim, w.delta.norm,
                      static_cast<float>(spec.norm_eps), z_ + at_values);
    out.project(p_.ops, z_ + at_values, first, n, w.o, nullptr);
  }

 private:
  MathParts p_;
  kernels::Buffers buffers_;
  float *q_, *k_, *v_, *z_, *out_, *a_, *b_;
};

}  // namespace

std::unique_ptr<SequenceMixer> make_gated_delta(const MathParts& parts, int64_t step_tokens_max) {
  return std::make_unique<GatedDelta>(parts, step_tokens_max);
}

}  // namespace moestro::engine
