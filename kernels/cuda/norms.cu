// RMSNorm, LayerNorm, sums of squares, the guard that is made of them, and what becomes of the residual stream between
// two blocks of a layer: a block for each row, or a warp where rows are narrow.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kRanksAtOnce = 4;

template <int kQuads>
__device__ float part_sum(const float (&x)[kQuads][4]) {
  float sum = 0.0f;
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) sum += x[q][i];
  }
  return sum;
}

/// x minus the row's mean.
template <typename Form>
__device__ void centre_part(const RowPart<Form>& part, float* room, float (&x)[Form::kQuads][4]) {
  const float mean = row_sum(part, part_sum(x), room) / static_cast<float>(part.dim);
  MOESTRO_UNROLL
  for (int q = 0; q < Form::kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i)
      if (part.has(q) && part.column(q) + i < part.dim) x[q][i] -= mean;
  }
}

template <int kQuads>
__device__ void add_part(const float (&from)[kQuads][4], float (&x)[kQuads][4]) {
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) x[q][i] += from[q][i];
  }
}

template <typename Form>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(MoestroCudaNorm a) {
  constexpr int kQuads = Form::kQuads;
  auto* room = reinterpret_cast<float*>(shared_memory());
  const auto [row, part] = row_place<Form>(a.dim);
  float x[kQuads][4], w[kQuads][4];
  load_part(part, a.weight, w);
  after_predecessors();
  let_next_begin();
  if (row >= a.n) return;
  load_part(part, a.x + row * a.dim, x);
  if (a.centred) centre_part(part, room, x);
  scale_part(norm_scale(row_sum(part, part_squares(x), room), a.dim, a.eps), w, x);
  if (a.bias) {
    load_part(part, a.bias, w);
    add_part(w, x);
  }
  store_part(part, x, a.y + row * a.dim);  // in place: each thread writes what it alone has read
}

/// Zeros for a row whose sum is not finite.
template <int kQuads>
__device__ bool clear_if_bad(float sum, float (&x)[kQuads][4]) {
  if (isfinite(sum)) return false;
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) x[q][i] = 0.0f;
  }
  return true;
}

template <typename Form>
__global__ void __launch_bounds__(kRowThreads) sum_squares_kernel(MoestroCudaSumSquares a) {
  constexpr int kQuads = Form::kQuads;
  auto* room = reinterpret_cast<float*>(shared_memory());
  const auto [row, part] = row_place<Form>(a.dim);
  after_predecessors();
  let_next_begin();
  if (row >= a.n) return;
  float x[kQuads][4];
  load_part(part, a.x + row * a.dim, x);
  const float sum = row_sum(part, part_squares(x), room);
  if (part.thread == 0 && a.sums) a.sums[row] = sum;
  if (!a.bad_layer || !clear_if_bad(sum, x)) return;
  store_part(part, x, a.x + row * a.dim);
  if (part.thread == 0 && a.bad_layer[row] < 0) a.bad_layer[row] = a.layer;
}

/// The sum of a token's expert rows, in rank order. A few rows are loaded at once: what they cost is the wait for
/// memory.
template <typename Form>
__device__ void sum_ranks(const MoestroCudaResidual& a, const RowPart<Form>& part, int64_t row,
                          float (&sum)[Form::kQuads][4]) {
  constexpr int kQuads = Form::kQuads;
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) sum[q][i] = 0.0f;
  }
  constexpr int kAtOnce = kQuads > 8 ? 1 : kQuads > 2 ? 2 : kRanksAtOnce;
  for (int64_t first = 0; first < a.top_k; first += kAtOnce) {
    float x[kAtOnce][kQuads][4], weight[kAtOnce];
    MOESTRO_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      const int64_t at = row * a.top_k + at_most(first + r, a.top_k - 1);
      load_part(part, a.rows + at * a.hidden, x[r]);
      weight[r] = a.weights[at];
    }
    MOESTRO_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      if (first + r >= a.top_k) break;
      MOESTRO_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) sum[q][i] = multiply_add(weight[r], x[r][q][i], sum[q][i]);
      }
    }
  }
}

template <typename Form>
__global__ void __launch_bounds__(kRowThreads) residual_kernel(MoestroCudaResidual a) {
  constexpr int kQuads = Form::kQuads;
  auto* room = reinterpret_cast<float*>(shared_memory());
  const auto [row, part] = row_place<Form>(a.hidden);
  after_predecessors();
  let_next_begin();
  if (row >= a.n) return;
  float y[kQuads][4], other[kQuads][4];
  load_part(part, a.base + row * a.hidden, y);
  if (a.rows) {
    sum_ranks(a, part, row, other);
    add_part(other, y);
  }
  if (a.added) {
    const float scale = a.added_logit ? 1.0f / (1.0f + expf(-a.added_logit[row])) : 1.0f;
    load_part(part, a.added + row * a.hidden, other);
    MOESTRO_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) y[q][i] = multiply_add(scale, other[q][i], y[q][i]);
    }
  }
  float sum = a.bad_layer || a.normed ? row_sum(part, part_squares(y), room) : 0.0f;
  if (a.bad_layer && clear_if_bad(sum, y)) {
    sum = 0.0f;
    if (part.thread == 0 && a.bad_layer[row] < 0) a.bad_layer[row] = a.layer;
  }
  store_part(part, y, a.y + row * a.hidden);
  if (!a.normed) return;
  if (a.centred) {
    centre_part(part, room, y);
    sum = row_sum(part, part_squares(y), room);
  }
  load_part(part, a.norm, other);
  scale_part(norm_scale(sum, a.hidden, a.eps), other, y);
  if (a.norm_bias) {
    load_part(part, a.norm_bias, other);
    add_part(other, y);
  }
  store_part(part, y, a.normed + row * a.hidden);
}

}  // namespace

MoestroCudaResult norm(const MoestroCudaNorm* a, MoestroCudaStream stream) {
  return with_row_form(a->dim, {a->x, a->weight, a->bias, a->y}, [&](auto form) {
    return launch_early(norm_kernel<decltype(form)>, dim3(row_blocks(a->n, a->dim)),
                        dim3(row_block_threads(a->dim)), kRowRoom, stream, *a);
  });
}

MoestroCudaResult sum_squares(const MoestroCudaSumSquares* a, MoestroCudaStream stream) {
  return with_row_form(a->dim, {a->x}, [&](auto form) {
    return launch_early(sum_squares_kernel<decltype(form)>, dim3(row_blocks(a->n, a->dim)),
                        dim3(row_block_threads(a->dim)), kRowRoom, stream, *a);
  });
}

MoestroCudaResult residual(const MoestroCudaResidual* a, MoestroCudaStream stream) {
  const std::initializer_list<const void*> places = {a->base, a->rows, a->added,  a->y,
                                                     a->norm, a->normed, a->norm_bias};
  return with_row_form(a->hidden, places, [&](auto form) {
    return launch_early(residual_kernel<decltype(form)>, dim3(row_blocks(a->n, a->hidden)),
                        dim3(row_block_threads(a->hidden)), kRowRoom, stream, *a);
  });
}

}  // namespace moestro::kernels::cuda
