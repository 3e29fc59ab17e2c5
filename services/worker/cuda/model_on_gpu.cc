#include "services/worker/cuda/model_on_gpu.h"

#include <string>

#include "kernels/plugin/op_abi.h"

namespace moestro::cuda {
namespace {

/// What a layer asks for and GPUs lack; null: nothing.
const char* missing_for(const model::LayerSpec& layer) {
  if (layer.latent && (layer.latent->kv_rank > MOESTRO_CUDA_LATENT_RANK_MAX ||
                       layer.latent->rope_dim > MOESTRO_CUDA_LATENT_ROPE_MAX ||
                       layer.latent->nope_dim > MOESTRO_CUDA_LATENT_HEAD_MAX ||
                       layer.latent->value_dim > MOESTRO_CUDA_LATENT_HEAD_MAX))
    return "latent attention (MLA) wider than 512 numbers, or than 64 that are rotated,";
  if (layer.attention.head_dim > MOESTRO_CUDA_HEAD_DIM_MAX) return "heads of more than 256 numbers";
  if (layer.moe.experts > MOESTRO_CUDA_EXPERTS_MAX) return "more than 1024 experts";
  if (layer.attention.chunk > 0) return "chunked attention";
  if (!layer.attention.rope) return "attention without RoPE";
  if (layer.attention.qk_norm == model::AttentionSpec::QkNorm::kRotatedHeads)
    return "a norm of heads after their rotation";
  if (layer.attention.temperature) return "queries scaled by their position";
  if (layer.delta) return "the gated delta rule";
  if (layer.attention.output_gate) return "attention with an output gate";
  if (!layer.moe_index) return nullptr;
  const model::ExpertSpec& expert = layer.moe.expert;
  if (expert.activation == model::Activation::kClampedSwiglu) return "experts with a clamped SwiGLU";
  if (expert.bias) return "experts with biases";
  if (layer.moe.before_attention) return "experts that see a layer's input before attention";
  if (layer.moe.router.on_input) return "a router whose weights multiply the experts' inputs";
  if (layer.moe.router.scores == model::RouterSpec::Scores::kSparseMixer) return "a SparseMixer router";
  return nullptr;
}

const char* missing_for(const model::ModelSpec& spec) {
  if (spec.norm == model::ModelSpec::Norm::kLayer) return "LayerNorm";
  if (spec.head_bias) return "a bias of the head";
  if (spec.hidden > MOESTRO_CUDA_NORM_MAX) return "a hidden width of more than 16384";
  if (spec.embedding_scale != 1.0 || spec.residual_scale != 1.0 || spec.logits_divisor != 1.0)
    return "a factor of embedding, residual stream or logits";
  return nullptr;
}

}  // namespace

Status check_on_gpu(const model::ModelSpec& spec) {
  if (const char* missing = missing_for(spec))
    return unsupported(spec.architecture + " on --device cuda: " + missing +
                       " is not there yet; --device cpu and emulated have it");
  for (const model::LayerSpec& layer : spec.layers)
    if (const char* missing = missing_for(layer))
      return unsupported(spec.architecture + " on --device cuda: " + missing + " is not there yet (layer " +
                         std::to_string(layer.index.value) + "); --device cpu and emulated have it");
  return Status::ok();
}

}  // namespace moestro::cuda
