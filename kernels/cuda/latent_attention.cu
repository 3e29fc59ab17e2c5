// Latent attention: which kernels.

#include "kernels/cuda/latent.h"

namespace moestro::kernels::cuda {
namespace {

bool has_kernels(const MoestroCudaLatent& l) {
  return l.kv_rank <= MOESTRO_CUDA_LATENT_RANK_MAX && l.rope_dim <= MOESTRO_CUDA_LATENT_ROPE_MAX &&
         l.nope_dim <= MOESTRO_CUDA_LATENT_HEAD_MAX && l.value_dim <= MOESTRO_CUDA_LATENT_HEAD_MAX &&
         l.dtype >= MOESTRO_CUDA_F32 && l.dtype <= MOESTRO_CUDA_INT8;
}

}  // namespace

MoestroCudaResult latent_attention(const MoestroCudaLatentAttention* a, MoestroCudaStream stream) {
  const int32_t most = a->rounded ? MOESTRO_CUDA_LATENT_TILE_PAIRS : MOESTRO_CUDA_LATENT_PAIRS;
  if (!has_kernels(a->latent) || a->pairs_most > most) return MOESTRO_CUDA_REFUSED;
  if (a->rounded && (a->latent.kv_rank % 8 != 0 || a->latent.rope_dim % 8 != 0)) return MOESTRO_CUDA_REFUSED;
  if (const MoestroCudaResult result = absorb_queries(*a, stream); result != 0) return result;
  const MoestroCudaResult result = a->rounded ? attend_latent_tiles(*a, stream) : attend_latent_parts(*a, stream);
  if (result != 0) return result;
  return expand_values(*a, stream);
}

}  // namespace moestro::kernels::cuda
