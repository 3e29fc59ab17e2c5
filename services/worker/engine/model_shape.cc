#include "common/dense_layout.h"
#include "common/model/mixer.h"
#include "services/worker/engine/pass.h"

namespace moestro::engine {
namespace {

double parameters(const kernels::Weight& w) { return static_cast<double>(w.rows * w.cols); }
double bytes(const kernels::Weight& w) { return static_cast<double>(dense_bytes(w.dtype, w.rows, w.cols)); }

}  // namespace

lanes::StepShape step_shape(const StepBatch& batch) {
  // An encoder's pass ends with the memory of its sequences, as another one with logits.
  const auto ended = static_cast<int64_t>(batch.encodes ? batch.memory.size() : batch.summed_rows.size());
  return {batch.rows(), batch.context, static_cast<int64_t>(batch.logit_rows.size()), ended, batch.micro_batch_shapes,
          batch.layers,    batch.decodes};
}

lanes::ModelShape model_shape(const model::ModelSpec& spec, const DenseWeights& weights,
                              const std::vector<ExpertLayout>& experts, const KvCache& cache) {
  lanes::ModelShape shape;
  shape.embed_bytes_per_token = static_cast<double>(row_bytes(weights.embed().dtype, spec.hidden));
  shape.head_parameters = parameters(weights.head());
  shape.head_weight_bytes = bytes(weights.head());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const model::LayerSpec& layer = spec.layers[i];
    const LayerWeights& w = weights.layer(i);
    lanes::LayerShape s;
    for (const kernels::Weight* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.latent.q_a, &w.latent.kv_a, &w.latent.kv_b,
                                     &w.delta.z, &w.delta.a, &w.delta.b, &w.cross.q, &w.cross.k, &w.cross.v,
                                     &w.cross.o}) {
      s.attention_parameters += parameters(*m);
      s.attention_weight_bytes += bytes(*m);
    }
    s.kv_bytes_per_token = cache.token_bytes(i);
    s.output_parameters = parameters(w.o);
    const model::MixerSize mixer = model::mixer_size(spec, layer);  // as if a memory had as many positions
    s.attention_flops_per_position = static_cast<double>(mixer.pair_operations + mixer.memory_pair_operations);
    s.qkv_bytes_per_token =
        static_cast<double>((w.q.rows + w.k.rows + w.v.rows + w.latent.kv_a.rows) * dtype_bytes(DType::kF32));
    s.attended_bytes_per_token = static_cast<double>(w.o.cols * dtype_bytes(DType::kF32));
    s.sparse = layer.moe_index.has_value();
    for (const kernels::Weight* m : {&w.mlp.gate, &w.mlp.up, &w.mlp.down}) {
      s.dense_parameters += parameters(*m);
      s.dense_weight_bytes += bytes(*m);
    }
    for (const kernels::Weight* m : {&w.shared.gate, &w.shared.up, &w.shared.down}) {
      s.shared_parameters += parameters(*m);
      s.shared_weight_bytes += bytes(*m);
    }
    s.router_parameters = parameters(w.router);
    s.router_weight_bytes = bytes(w.router);
    if (s.sparse) {
      const ExpertLayout& layout = experts[layer.moe_index->value];
      s.expert_parameters = static_cast<double>(layer.moe.expert.matrices * layout.hidden() * layout.ffn());
      s.expert_bytes = static_cast<double>(layout.bytes());
      s.experts = static_cast<int32_t>(layer.moe.experts);
    }
    shape.layers.push_back(s);
  }
  return shape;
}

}  // namespace moestro::engine
