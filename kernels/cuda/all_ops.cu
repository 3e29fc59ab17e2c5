#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda {

MoestroCudaOps all_ops() {
  MoestroCudaOps ops{};
  ops.matmul = matmul;
  ops.matmul_group = matmul_group;
  ops.gather = gather;
  ops.norm = norm;
  ops.sum_squares = sum_squares;
  ops.residual = residual;
  ops.rope = rope;
  ops.silu_mul = silu_mul;
  ops.exponentials = exponentials;
  ops.add_scaled = add_scaled;
  ops.clamp = clamp;
  ops.combine = combine;
  ops.kv_write = kv_write;
  ops.place_heads = place_heads;
  ops.attention = attention;
  ops.router = router;
  ops.sort_routes = sort_routes;
  ops.route = route;
  ops.experts = experts;
  ops.sample = sample;
  ops.delta = delta;
  ops.gated_norm = gated_norm;
  ops.sigmoid_mul = sigmoid_mul;
  ops.scale_rows = scale_rows;
  ops.latent_write = latent_write;
  ops.latent_attention = latent_attention;
  return ops;
}

}  // namespace moestro::kernels::cuda
