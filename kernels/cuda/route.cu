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
constexpr int kAhead = 8;              ///< fours of a row of the router that a lane has loaded before it needs them
constexpr uint64_t kNormRoom = kTokensMax * kRowRoom;

/// The first of a lane's columns in each run of 128. All sums of this file are over a lane's fours in their order, then
/// over lanes.
__device__ int32_t lane_column() { return lane_id() * 4; }
constexpr int32_t kColumnsApart = kWarp * 4;

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
                             float (&sums)[kTokens]) {
  warp_sum_each(sums);
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    if (lane_id() == 0 && t < count && expert < a.choice.experts)
      a.logits[(first + t) * a.choice.experts + expert] = sums[t] + (a.bias ? a.bias[expert] : 0.0f);
  }
}

/// The normed rows of a block's tokens in shared memory; zeros for a token that is not there.
template <int kTokens, typename Form>
__device__ void norm_tokens(const MoestroCudaRoute& a, int64_t first, const RowPart<Form>& part,
                            const float (&weight)[Form::kQuads][4], float* normed, float* room) {
  float x[kTokens][Form::kQuads][4] = {}, squares[kTokens];
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t)
    if (first + t < a.n) load_part(part, a.x + (first + t) * a.hidden, x[t]);
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) squares[t] = part_squares(x[t]);
  block_sums(squares, room);
  MOESTRO_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    scale_part(norm_scale(squares[t], a.hidden, a.eps), weight, x[t]);
    if (blockIdx.x == 0 && first + t < a.n) store_part(part, x[t], a.normed + (first + t) * a.hidden);
    store_part(part, x[t], normed + t * a.hidden);
  }
  __syncthreads();
}

/// The same of narrow rows, each by a warp.
template <int kTokens, typename Form>
__device__ void norm_narrow_tokens(const MoestroCudaRoute& a, int64_t first, const RowPart<Form>& part,
                                   const float (&weight)[Form::kQuads][4], float* normed) {
  if (const int t = warp_id(); t < kTokens) {
    float x[Form::kQuads][4] = {};
    if (first + t < a.n) {
      load_part(part, a.x + (first + t) * a.hidden, x);
      scale_part(norm_scale(warp_sum(part_squares(x)), a.hidden, a.eps), weight, x);
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

/// A lane's next kAhead fours of a row.
__device__ void load_ahead(const float* row, int32_t from, int32_t cols, float (&to)[kAhead][4]) {
  MOESTRO_UNROLL
  for (int q = 0; q < kAhead; ++q) {
    const int32_t c = from + q * kColumnsApart;
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[q][i] = 0.0f;
    if (c < cols) load_four(row + c, to[q]);
  }
}

/// sums[t] += row * tokens, from shared memory; `w`: what load_ahead() has loaded first.
template <int kTokens>
__device__ void add_row(const float* row, const float* normed, int32_t cols, float (&w)[kAhead][4],
                        float (&sums)[kTokens]) {
  for (int32_t from = lane_column(); from < cols; from += kAhead * kColumnsApart) {
    float next[kAhead][4];
    load_ahead(row, from + kAhead * kColumnsApart, cols, next);
    MOESTRO_UNROLL
    for (int q = 0; q < kAhead; ++q) {
      const int32_t c = at_most(from + q * kColumnsApart, cols - 4);  // behind the last, w is zeros
      float x[kTokens][4];
      MOESTRO_UNROLL
      for (int t = 0; t < kTokens; ++t) load_four(normed + t * cols + c, x[t]);
      add_four(w[q], x, sums);
    }
    MOESTRO_UNROLL
    for (int q = 0; q < kAhead; ++q) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) w[q][i] = next[q][i];
    }
  }
}

/// What a lane needs first of the router is on its way while the block norms. Only fours.
template <int kTokens, typename Form, bool kNarrow>
__global__ void __launch_bounds__(kThreads) few_routes_kernel(MoestroCudaRoute a) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  auto* word = reinterpret_cast<uint32_t*>(room);
  float* normed = room + kNormRoom / sizeof(float);
  const auto cols = static_cast<int32_t>(a.hidden);
  const int64_t expert = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), experts = a.choice.experts,
                first = static_cast<int64_t>(blockIdx.y) * kTokens;
  const int count = static_cast<int>(at_most<int64_t>(kTokens, a.n - first));
  const float* row = a.weight + at_most(expert, experts - 1) * a.hidden;
  const RowPart<Form> part{cols, kNarrow ? lane_id() : static_cast<int32_t>(threadIdx.x),
                           static_cast<int32_t>(row_threads(a.hidden))};
  float w[kAhead][4], norm_weight[Form::kQuads][4];
  load_ahead(row, lane_column(), cols, w);
  load_part(part, a.norm, norm_weight);
  for (int32_t c = kAhead * kColumnsApart + lane_id() * 32; c < cols; c += kWarp * 32) prefetch(row + c);
  after_predecessors();
  let_next_begin();
  if constexpr (kNarrow) norm_narrow_tokens<kTokens>(a, first, part, norm_weight, normed);
  else norm_tokens<kTokens>(a, first, part, norm_weight, normed, room);
  float sums[kTokens] = {};
  add_row(row, normed, cols, w, sums);
  write_logits(a, first, count, expert, sums);
  if (!last_block(a.counters + 1 + blockIdx.y, gridDim.x, word)) return;
  choose_for(a, first, count, normed);
  if (last_block(a.counters, gridDim.y, word))
    order_routes(a.sort, route_room(reinterpret_cast<char*>(normed), experts));
}

constexpr int kExpertsAtOnce = 8;

template <bool kWhole>
__device__ void load_columns(const float* row, int64_t c, int64_t cols, float (&to)[4]) {
  if constexpr (kWhole) load_four(row + c, to);
  else load_some(row + c, cols - c, to);
}

/// sums[e][t] of experts from `first_expert` and tokens from `first` on.
template <bool kWhole>
__device__ void add_products(const MoestroCudaRoute& a, int64_t first, int64_t first_expert,
                             float (&sums)[kExpertsAtOnce][kTokensMax]) {
  for (int64_t c = lane_column(); c < a.hidden; c += kColumnsApart) {
    float w[kExpertsAtOnce][4], x[kTokensMax][4];
    MOESTRO_UNROLL
    for (int e = 0; e < kExpertsAtOnce; ++e)
      load_columns<kWhole>(a.weight + at_most(first_expert + e, a.choice.experts - 1) * a.hidden, c, a.hidden, w[e]);
    MOESTRO_UNROLL
    for (int t = 0; t < kTokensMax; ++t)
      load_columns<kWhole>(a.normed + at_most(first + t, a.n - 1) * a.hidden, c, a.hidden, x[t]);
    MOESTRO_UNROLL
    for (int e = 0; e < kExpertsAtOnce; ++e) add_four(w[e], x, sums[e]);
  }
}

/// A warp for kTokensMax tokens and kExpertsAtOnce experts; the warps of a block have the same experts.
template <bool kWhole>
__global__ void __launch_bounds__(kThreads) many_logits_kernel(MoestroCudaRoute a) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp_id()) * kTokensMax,
                first_expert = static_cast<int64_t>(blockIdx.y) * kExpertsAtOnce;
  after_predecessors();
  let_next_begin();
  if (first >= a.n) return;
  float sums[kExpertsAtOnce][kTokensMax] = {};
  add_products<kWhole>(a, first, first_expert, sums);
  const int count = static_cast<int>(at_most<int64_t>(kTokensMax, a.n - first));
  MOESTRO_UNROLL
  for (int e = 0; e < kExpertsAtOnce; ++e) write_logits(a, first, count, first_expert + e, sums[e]);
}

bool has_fours(const MoestroCudaRoute& a) {
  return a.hidden % 4 == 0 && is_aligned16({a.x, a.norm, a.normed, a.weight});
}

MoestroCudaResult many_routes(const MoestroCudaRoute& a, MoestroCudaStream stream) {
  const MoestroCudaNorm rows{a.x, a.n, a.hidden, a.norm, nullptr, a.eps, 0, a.normed};
  if (const MoestroCudaResult result = norm(&rows, stream); result != 0) return result;
  const dim3 grid(static_cast<unsigned>(divided_up(a.n, kTokensMax * kWarps)),
                  static_cast<unsigned>(divided_up(a.choice.experts, kExpertsAtOnce)));
  const MoestroCudaResult result = launch_early(has_fours(a) ? many_logits_kernel<true> : many_logits_kernel<false>,
                                                grid, dim3(kThreads), 0, stream, a);
  return result != 0 ? result : router(&a.choice, stream);
}

template <int kTokens>
MoestroCudaResult few_routes(const MoestroCudaRoute& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(divided_up(a.choice.experts, kWarps)),
                  static_cast<unsigned>(divided_up(a.n, kTokens)));
  const uint64_t room = few_room(a, kTokens);
  if (room > static_cast<uint64_t>(kSharedOfEveryCard)) return MOESTRO_CUDA_REFUSED;
  const auto with = [&](auto kernel) { return launch_early(kernel, grid, dim3(kThreads), room, stream, a); };
  const int64_t quads = row_quads(a.hidden);
  if (is_warp_row(a.hidden)) return with(few_routes_kernel<kTokens, RowForm<2, true>, true>);
  if (quads <= 2) return with(few_routes_kernel<kTokens, RowForm<2, true>, false>);
  if (quads <= 4) return with(few_routes_kernel<kTokens, RowForm<4, true>, false>);
  return with(few_routes_kernel<kTokens, RowForm<6, true>, false>);
}

}  // namespace

MoestroCudaResult route(const MoestroCudaRoute* a, MoestroCudaStream stream) {
  static_assert(MOESTRO_CUDA_ROUTE_WIDTH <= 6 * 4 * kRowThreads, "a thread has at most six fours");
  if (a->choice.experts > MOESTRO_CUDA_EXPERTS_MAX || a->hidden > MOESTRO_CUDA_ROUTE_WIDTH) return MOESTRO_CUDA_REFUSED;
  if (a->n <= MOESTRO_CUDA_ROUTE_ROWS && has_fours(*a))
    return a->n == 1 ? few_routes<1>(*a, stream) : few_routes<kTokensMax>(*a, stream);
  const MoestroCudaResult result = many_routes(*a, stream);
  return result != 0 || a->n > MOESTRO_CUDA_ROUTE_ROWS ? result : sort_routes(&a->sort, stream);
}

}  // namespace moestro::kernels::cuda
