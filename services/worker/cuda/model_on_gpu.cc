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
  if (layer.delta && layer.delta->key_dim > MOESTRO_CUDA_DELTA_KEY_MAX)
    return "a gated delta rule with keys of more than 128 numbers";
  if (layer.delta && layer.delta->conv > MOESTRO_CUDA_DELTA_CONV_MAX)
    return "a gated delta rule whose convolution sees more than 16 positions";
  return nullptr;
}

const char* missing_for(const model::ModelSpec& spec) {
  if (spec.hidden > MOESTRO_CUDA_NORM_MAX) return "a hidden width of more than 16384";
  return nullptr;
}

}  // namespace

Status check_on_gpu(const model::ModelSpec& spec) {
  if (spec.is_encoder_decoder())
    return unsupported(spec.architecture + " on --device cuda: encoder-decoder models are not supported yet; --device "
                       "cpu and emulated run them");
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
