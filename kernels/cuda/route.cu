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
constexpr int kTokensMax = 4;          ///< of a block
constexpr int kAhead = 16;             ///< quads of a row of the router that a lane has loaded before it needs them
constexpr uint64_t kNormRoom = kTokensMax * kRowRoom;
constexpr uint64_t kSharedMost = 99 * 1024;

/// Of a lane four columns after another; `whole`: they are loaded at once. All sums of this file are over a lane's
/// columns in their order, then over lanes.
struct Columns {
  int64_t cols;
  bool whole;

  __device__ static int64_t first_of(int64_t quad) { return (quad * kWarp + lane_id()) * 4; }
  template <int kQuads>
  __device__ void load(const float* row, int64_t first_quad, float (&to)[kQuads][4]) const {
    if (whole) {
      MOESTRO_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const int64_t c = first_of(first_quad + q);
        const Bytes16 four = c < cols ? load_as<Bytes16>(row + c) : Bytes16{};
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) to[q][i] = bits_to_float(four.words[i]);
      }
    } else {
      for (int q = 0; q < kQuads; ++q) load_four(row, first_of(first_quad + q), cols, false, to[q]);
    }
  }
};

/// sums[t] += w x of one quad of columns.
template <int kTokens>
__device__ void add_four(const float (&w)[4], const float (&x)[kTokens][4], float (&sums)[kTokens]) {
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) sums[t] = multiply_add(w[i], x[t][i], sums[t]);
  }
}

/// An expert's logits of `count` tokens from `first` on.
template <int kTokens>
__device__ void write_logits(const MoestroCudaRoute& a, int64_t first, int count, int64_t expert,
                             const float (&sums)[kTokens]) {
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane_id() == 0 && t < count && expert < a.choice.experts)
      a.logits[(first + t) * a.choice.experts + expert] = sum + (a.bias ? a.bias[expert] : 0.0f);
  }
}

/// The normed rows of a block's tokens in shared memory; zeros for a token that is not there.
template <int kTokens, int kQuads>
__device__ void norm_tokens(const MoestroCudaRoute& a, int64_t first, float* normed, float* room) {
  const RowPart part{a.hidden, threadIdx.x, row_threads(a.hidden)};
  float x[kTokens][kQuads][4] = {}, squares[kTokens];
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t)
    if (first + t < a.n) load_part(part, a.x + (first + t) * a.hidden, x[t]);
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) squares[t] = part_squares(part, x[t]);
  block_sums(squares, room);
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    scale_part(part, norm_scale(squares[t], a.hidden, a.eps), a.norm, x[t]);
    if (blockIdx.x == 0 && first + t < a.n) store_part(part, x[t], a.normed + (first + t) * a.hidden);
    store_part(part, x[t], normed + t * a.hidden);
  }
  __syncthreads();
}

/// The same of narrow rows, each by a warp.
template <int kTokens>
__device__ void norm_narrow_tokens(const MoestroCudaRoute& a, int64_t first, float* normed) {
  const RowPart part{a.hidden, lane_id(), kWarp};
  if (const int t = warp_id(); t < kTokens) {
    float x[2][4] = {};
    if (first + t < a.n) {
      load_part(part, a.x + (first + t) * a.hidden, x);
      scale_part(part, norm_scale(warp_sum(part_squares(part, x)), a.hidden, a.eps), a.norm, x);
      if (blockIdx.x == 0) store_part(part, x, a.normed + (first + t) * a.hidden);
    }
    store_part(part, x, normed + t * a.hidden);
  }
  __syncthreads();
}

/// Shared memory: the normed tokens, later what choosing and sorting need.
uint64_t few_room(const MoestroCudaRoute& a, int64_t tokens) {
  const auto normed = static_cast<uint64_t>(tokens * a.hidden) * sizeof(float),
             choice = static_cast<uint64_t>(tokens * (choice_floats(a.choice) + a.choice.experts)) * sizeof(float);
  return at_least(at_least(normed, choice), route_room_bytes(a.choice.experts, kWarps)) + kNormRoom;
}

/// Chooses for the block's tokens, from all blocks' logits.
__device__ void choose_for(const MoestroCudaRoute& a, int64_t first, int count, float* room) {
  if (warp_id() >= count) return;
  const int64_t experts = a.choice.experts, t = first + warp_id();
  float* logits = room + warp_id() * (choice_floats(a.choice) + experts);
  for (int64_t e = lane_id(); e < experts; e += kWarp) logits[e] = load_fresh(a.logits + t * experts + e);
  __syncwarp();
  choose_experts(a.choice, t, logits, logits + experts);
}

/// kQuads: of norms; 0: rows are narrow. What a lane needs first of the router is on its way while the block norms.
template <int kTokens, int kQuads>
__global__ void __launch_bounds__(kThreads) few_routes_kernel(MoestroCudaRoute a) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  auto* word = reinterpret_cast<uint32_t*>(room);
  float* normed = room + kNormRoom / sizeof(float);
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), experts = a.choice.experts,
                first = static_cast<int64_t>(blockIdx.y) * kTokens;
  const int count = static_cast<int>(at_most<int64_t>(kTokens, a.n - first));
  const float* row = a.weight + at_most(expert, experts - 1) * a.hidden;
  const Columns columns{a.hidden, a.hidden % 4 == 0 && is_aligned(a.weight)};
  const int64_t quads = divided_up(a.hidden, 4 * kWarp);
  float w[kAhead][4];
  columns.load(row, 0, w);
  for (int64_t c = kAhead * kWarp * 4 + lane_id() * 32; c < a.hidden; c += kWarp * 32) prefetch(row + c);
  after_predecessors();
  let_next_begin();
  if constexpr (kQuads == 0) norm_narrow_tokens<kTokens>(a, first, normed);
  else norm_tokens<kTokens, kQuads>(a, first, normed, room);
  float sums[kTokens] = {};
  for (int64_t from = 0; from < quads; from += kAhead) {
    if (from > 0) columns.load(row, from, w);
    MOESTRO_UNROLL
    for (int q = 0; q < kAhead; ++q) {
      const int64_t c = Columns::first_of(from + q);
      if (c >= a.hidden) break;
      float x[kTokens][4];
      MOESTRO_UNROLL
      for (int t = 0; t < kTokens; ++t) load_four(normed + t * a.hidden, c, a.hidden, a.hidden % 4 == 0, x[t]);
      add_four(w[q], x, sums);
    }
  }
  write_logits(a, first, count, expert, sums);
  if (!last_block(a.counters + 1 + blockIdx.y, gridDim.x, word)) return;
  choose_for(a, first, count, normed);
  if (last_block(a.counters, gridDim.y, word))
    order_routes(a.sort, route_room(reinterpret_cast<char*>(normed), experts));
}

constexpr int kExpertsAtOnce = 8;

/// sums[e][t] of experts from `first_expert` and tokens from `first` on.
template <bool kWhole>
__device__ void add_products(const MoestroCudaRoute& a, int64_t first, int64_t first_expert,
                             float (&sums)[kExpertsAtOnce][kTokensMax]) {
  for (int64_t c = Columns::first_of(0); c < a.hidden; c += kWarp * 4) {
    float w[kExpertsAtOnce][4], x[kTokensMax][4];
    MOESTRO_UNROLL
    for (int e = 0; e < kExpertsAtOnce; ++e)
      load_four(a.weight + at_most(first_expert + e, a.choice.experts - 1) * a.hidden, c, a.hidden, kWhole, w[e]);
    MOESTRO_UNROLL
    for (int t = 0; t < kTokensMax; ++t)
      load_four(a.normed + at_most(first + t, a.n - 1) * a.hidden, c, a.hidden, kWhole, x[t]);
    MOESTRO_UNROLL
    for (int e = 0; e < kExpertsAtOnce; ++e) add_four(w[e], x, sums[e]);
  }
}

/// A warp for kTokensMax tokens and kExpertsAtOnce experts; the warps of a block have the same experts.
__global__ void __launch_bounds__(kThreads) many_logits_kernel(MoestroCudaRoute a) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_id()) * kTokensMax,
                first_expert = static_cast<int64_t>(blockIdx.y) * kExpertsAtOnce;
  after_predecessors();
  let_next_begin();
  if (first >= a.n) return;
  float sums[kExpertsAtOnce][kTokensMax] = {};
  const bool whole = a.hidden % 4 == 0 && is_aligned(a.weight) && is_aligned(a.normed);
  if (whole) add_products<true>(a, first, first_expert, sums);
  else add_products<false>(a, first, first_expert, sums);
  const int count = static_cast<int>(at_most<int64_t>(kTokensMax, a.n - first));
  MOESTRO_UNROLL
  for (int e = 0; e < kExpertsAtOnce; ++e) write_logits(a, first, count, first_expert + e, sums[e]);
}

MoestroCudaResult many_routes(const MoestroCudaRoute& a, MoestroCudaStream stream) {
  const MoestroCudaNorm rows{a.x, a.n, a.hidden, a.norm, nullptr, a.eps, 0, a.normed};
  if (const MoestroCudaResult result = norm(&rows, stream); result != 0) return result;
  const dim3 grid(static_cast<unsigned>(divided_up(a.n, kTokensMax * kWarps)),
                  static_cast<unsigned>(divided_up(a.choice.experts, kExpertsAtOnce)));
  if (const MoestroCudaResult result = launch_early(many_logits_kernel, grid, dim3(kThreads), 0, stream, a);
      result != 0)
    return result;
  return router(&a.choice, stream);
}

template <int kTokens>
MoestroCudaResult few_routes(const MoestroCudaRoute& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(divided_up(a.choice.experts, kWarps)),
                  static_cast<unsigned>(divided_up(a.n, kTokens)));
  const uint64_t room = few_room(a, kTokens);
  if (room > kSharedMost) return MOESTRO_CUDA_REFUSED;
  if (is_warp_row(a.hidden))
    return launch_early(few_routes_kernel<kTokens, 0>, grid, dim3(kThreads), room, stream, a);
  return with_row_quads(a.hidden, [&](auto quads) {
    return launch_early(few_routes_kernel<kTokens, at_most(decltype(quads)::value, 8)>, grid, dim3(kThreads), room,
                        stream, a);
  });
}

}  // namespace

MoestroCudaResult route(const MoestroCudaRoute* a, MoestroCudaStream stream) {
  if (a->choice.experts > MOESTRO_CUDA_EXPERTS_MAX || a->hidden > MOESTRO_CUDA_ROUTE_WIDTH) return MOESTRO_CUDA_REFUSED;
  if (a->n > MOESTRO_CUDA_ROUTE_ROWS) return many_routes(*a, stream);
  return a->n == 1 ? few_routes<1>(*a, stream) : few_routes<kTokensMax>(*a, stream);
}

}  // namespace moestro::kernels::cuda
