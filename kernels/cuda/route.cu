// From the residual stream to sorted routes: norm, the router's product in f32, its choice, and the routes by expert.
// For few tokens one kernel, in which a group of tokens and a few experts are a block. Every block norms its tokens for
// itself. The last block of a group of tokens chooses for them, and the last group's sorts.

#include "kernels/cuda/last_block.h"
#include "kernels/cuda/route_order.h"
#include "kernels/cuda/router_choice.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;
constexpr int kTokens = 4;             ///< of a block
constexpr uint64_t kSharedMost = 99 * 1024;

/// sums[e][t] += the products of rows of the router with tokens, over every 32nd four columns. All sums of this file
/// are in this order.
template <int kExperts>
__device__ void add_products(const float* const (&rows)[kExperts], const float* const (&tokens)[kTokens], int64_t cols,
                             bool whole, float (&sums)[kExperts][kTokens]) {
  MOESTRO_UNROLL_4
  for (int64_t c = lane_id() * 4; c < cols; c += kWarp * 4) {
    float w[kExperts][4], x[kTokens][4];
    MOESTRO_UNROLL
    for (int e = 0; e < kExperts; ++e) load_four(rows[e], c, cols, whole, w[e]);
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t) load_four(tokens[t], c, cols, whole, x[t]);
    MOESTRO_UNROLL
    for (int e = 0; e < kExperts; ++e) {
      MOESTRO_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) sums[e][t] = multiply_add(w[e][i], x[t][i], sums[e][t]);
      }
    }
  }
}

/// Logits of `count` tokens from `first` on.
template <int kExperts>
__device__ void write_logits(const MoestroCudaRoute& a, int64_t first, int count, int64_t first_expert,
                             float (&sums)[kExperts][kTokens]) {
  MOESTRO_UNROLL
  for (int e = 0; e < kExperts; ++e) {
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const float sum = warp_sum(sums[e][t]);
      if (lane_id() == 0 && t < count && first_expert + e < a.choice.experts)
        a.logits[(first + t) * a.choice.experts + first_expert + e] =
            sum + (a.bias ? a.bias[first_expert + e] : 0.0f);
    }
  }
}

/// The normed rows of a block's tokens in shared memory; zeros for a token that is not there.
template <int kQuads>
__device__ void norm_tokens(const MoestroCudaRoute& a, int64_t first, float* normed, float* room) {
  const bool by_warp = is_warp_row(a.hidden);
  const RowPart part{a.hidden, by_warp ? lane_id() : static_cast<int64_t>(threadIdx.x), row_threads(a.hidden)};
  for (int t = by_warp ? warp_id() : 0; t < kTokens; t += by_warp ? kWarps : 1) {
    float x[kQuads][4] = {};
    if (first + t < a.n) {
      load_part(part, a.x + (first + t) * a.hidden, x);
      scale_part(part, norm_scale(row_sum(part, part_squares(part, x), room), a.hidden, a.eps), a.norm, x);
      if (blockIdx.x == 0) store_part(part, x, a.normed + (first + t) * a.hidden);
    }
    store_part(part, x, normed + t * a.hidden);
  }
  __syncthreads();
}

/// Shared memory: the normed tokens, later what choosing and sorting need.
uint64_t few_room(const MoestroCudaRoute& a) {
  const auto tokens = static_cast<uint64_t>(kTokens * a.hidden) * sizeof(float),
             choice = static_cast<uint64_t>(kTokens * (choice_floats(a.choice) + a.choice.experts)) * sizeof(float);
  return at_least(at_least(tokens, choice), route_room_bytes(a.choice.experts, kWarps)) + kRowRoom;
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads) few_routes_kernel(MoestroCudaRoute a) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  auto* word = reinterpret_cast<uint32_t*>(room);
  float* normed = room + kRowRoom / sizeof(float);
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), experts = a.choice.experts,
                first = static_cast<int64_t>(blockIdx.y) * kTokens;
  const int count = static_cast<int>(at_most<int64_t>(kTokens, a.n - first));
  const float* row = a.weight + at_most(expert, experts - 1) * a.hidden;
  for (int64_t c = lane_id() * 32; c < a.hidden; c += kWarp * 32) prefetch(row + c);
  after_predecessors();
  let_next_begin();
  norm_tokens<kQuads>(a, first, normed, room);
  float sums[1][kTokens] = {};
  const float* const rows[1] = {row};
  const float* const tokens[kTokens] = {normed, normed + a.hidden, normed + 2 * a.hidden, normed + 3 * a.hidden};
  add_products(rows, tokens, a.hidden, a.hidden % 4 == 0 && is_aligned(a.weight), sums);
  write_logits(a, first, count, expert, sums);
  if (!last_block(a.counters + 1 + blockIdx.y, gridDim.x, word)) return;
  if (warp_id() < count) {
    float* floats = normed + warp_id() * (choice_floats(a.choice) + experts);
    for (int64_t e = lane_id(); e < experts; e += kWarp)
      floats[e] = load_fresh(a.logits + (first + warp_id()) * experts + e);
    __syncwarp();
    choose_experts(a.choice, first + warp_id(), floats, floats + experts);
  }
  if (last_block(a.counters, gridDim.y, word))
    order_routes(a.sort, route_room(reinterpret_cast<char*>(normed), experts));
}

constexpr int kExpertsAtOnce = 8;

/// A warp for kTokens tokens and kExpertsAtOnce experts; neighbouring warps have the same experts.
__global__ void __launch_bounds__(kThreads) many_logits_kernel(MoestroCudaRoute a) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_id()) * kTokens,
                first_expert = static_cast<int64_t>(blockIdx.y) * kExpertsAtOnce;
  after_predecessors();
  let_next_begin();
  if (first >= a.n) return;
  const float *rows[kExpertsAtOnce], *tokens[kTokens];
  MOESTRO_UNROLL
  for (int e = 0; e < kExpertsAtOnce; ++e)
    rows[e] = a.weight + at_most(first_expert + e, a.choice.experts - 1) * a.hidden;
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) tokens[t] = a.normed + at_most(first + t, a.n - 1) * a.hidden;
  float sums[kExpertsAtOnce][kTokens] = {};
  add_products(rows, tokens, a.hidden, a.hidden % 4 == 0 && is_aligned(a.weight) && is_aligned(a.normed), sums);
  write_logits(a, first, static_cast<int>(at_most<int64_t>(kTokens, a.n - first)), first_expert, sums);
}

MoestroCudaResult many_routes(const MoestroCudaRoute& a, MoestroCudaStream stream) {
  const MoestroCudaNorm rows{a.x, a.n, a.hidden, a.norm, nullptr, a.eps, 0, a.normed};
  if (const MoestroCudaResult result = norm(&rows, stream); result != 0) return result;
  const dim3 grid(static_cast<unsigned>(divided_up(a.n, kTokens * kWarps)),
                  static_cast<unsigned>(divided_up(a.choice.experts, kExpertsAtOnce)));
  if (const MoestroCudaResult result = launch_early(many_logits_kernel, grid, dim3(kThreads), 0, stream, a);
      result != 0)
    return result;
  return router(&a.choice, stream);
}

}  // namespace

MoestroCudaResult route(const MoestroCudaRoute* a, MoestroCudaStream stream) {
  if (a->choice.experts > MOESTRO_CUDA_EXPERTS_MAX || a->hidden > MOESTRO_CUDA_ROUTE_WIDTH) return MOESTRO_CUDA_REFUSED;
  if (a->n > MOESTRO_CUDA_ROUTE_ROWS) return many_routes(*a, stream);
  const dim3 grid(static_cast<unsigned>(divided_up(a->choice.experts, kWarps)),
                  static_cast<unsigned>(divided_up(a->n, kTokens)));
  const uint64_t room = few_room(*a);
  if (room > kSharedMost) return MOESTRO_CUDA_REFUSED;
  return with_row_quads(a->hidden, [&](auto quads) {
    return launch_early(few_routes_kernel<decltype(quads)::value>, grid, dim3(kThreads), room, stream, *a);
  });
}

}  // namespace moestro::kernels::cuda
