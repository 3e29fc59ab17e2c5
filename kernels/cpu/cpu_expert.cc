#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

namespace {
constexpr int64_t kUpRows = 32;     ///< ffn rows of a unit of the first phase
constexpr int64_t kDownRows = 128;  ///< hidden rows of a unit of the second
}  // namespace

/// One expert on its rows. Phase 1: activations = silu(gate x) * up x, in units of ffn rows; phase 2: down,
/// in units of hidden rows.
struct CpuOps::ExpertWork {
  const ExpertLayout& layout;
  const std::byte* blob;
  int64_t rows;
  const float* const* x;
  float* const* y;
  float* const* a;  ///< activations, `ffn` wide
  int64_t units_per_tile;
  int64_t up_rows, down_rows;

  /// Rows [first, first + count) of the matrix at `part` of a tile, `cols` wide.
  GemmTask product(const ExpertTile& tile, int64_t part, int64_t scales, int64_t first, int64_t count,
                   int64_t cols) const {
    const std::byte* base = blob + tile.offset;
    GemmTask task;
    task.n = rows;
    const DType dtype = layout.dtype();
    task.w = base + part + first * row_bytes(dtype, cols);
    task.w_stride = dtype == DType::kInt4 ? row_bytes(dtype, cols) : cols;
    task.rows = count;
    task.cols = cols;
    if (is_quantised(dtype)) {
      task.scale_stride = quant_groups(cols) * group_parameters(dtype);
      task.scales = reinterpret_cast<const uint16_t*>(base + scales) + first * task.scale_stride;
    }
    return task;
  }
};

void CpuOps::expert_up(const ExpertWork& work, int64_t unit, int thread) {
  const ExpertTile tile = work.layout.tile(unit / work.units_per_tile);
  const int64_t first = unit % work.units_per_tile * work.up_rows;
  const int64_t count = std::min(work.up_rows, tile.ffn - first);
  if (count <= 0) return;  // the last tile may be narrower
  float* up = scratch(thread).up.at_least(work.rows * work.up_rows);
  float** up_rows = scratch(thread).up_rows.at_least(work.rows);
  for (int64_t t = 0; t < work.rows; ++t) up_rows[t] = up + t * work.up_rows;

  GemmTask gate_task = work.product(tile, tile.gate, tile.gate_scales, first, count, work.layout.hidden());
  gate_task.x = work.x;
  gate_task.y = work.a;
  gate_task.y_offset = tile.first_ffn + first;
  gate_task.panel = panel(thread);
  GemmTask up_task = work.product(tile, tile.up, tile.up_scales, first, count, work.layout.hidden());
  gate_task.next_w = up_task.w;
  gemm(work.layout.dtype())(gate_task);
  up_task.x = work.x;
  up_task.y = up_rows;
  up_task.panel = gate_task.panel;
  // Threads take units in turn, so this one's next is most likely as many units on as there are threads.
  const int64_t later = unit + pool_.threads();
  if (later < work.layout.tiles() * work.units_per_tile) {
    const ExpertTile next = work.layout.tile(later / work.units_per_tile);
    up_task.next_w = work.product(next, next.gate, next.gate_scales,
                                  later % work.units_per_tile * work.up_rows, 0, work.layout.hidden())
                         .w;
  }
  gemm(work.layout.dtype())(up_task);
  for (int64_t t = 0; t < work.rows; ++t)
    kernels_.silu_mul(work.a[t] + gate_task.y_offset, up_rows[t], count);
}

void CpuOps::expert_down(const ExpertWork& work, int64_t unit, int thread) {
  const int64_t first = unit * work.down_rows;
  const int64_t count = std::min(work.down_rows, work.layout.hidden() - first);
  float* const block = panel(thread);
  for (int64_t i = 0; i < work.layout.tiles(); ++i) {
    const ExpertTile tile = work.layout.tile(i);
    GemmTask task = work.product(tile, tile.down, tile.down_scales, first, count, tile.ffn);
    task.x = work.a;
    task.x_offset = tile.first_ffn;
    task.y = work.y;
    task.y_offset = first;
    task.accumulate = i > 0;
    task.panel = block;
    if (i + 1 < work.layout.tiles()) {
      const ExpertTile next = work.layout.tile(i + 1);
      task.next_w = work.product(next, next.down, next.down_scales, first, count, next.ffn).w;
    }
    gemm(work.layout.dtype())(task);
  }
}

void CpuOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                        std::span<const RoutedRow> rows, int64_t top_k, float* out) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n == 0) return;
  const int64_t stride = round_up(layout.ffn(), 16);
  float* activations = activations_.at_least(n * stride);
  const float** x_rows = x_rows_.at_least(n);
  float** y_rows = y_rows_.at_least(n);
  float** a_rows = a_rows_.at_least(n);
  for (int64_t t = 0; t < n; ++t) {
    const RoutedRow& r = rows[static_cast<size_t>(t)];
    x_rows[t] = x + r.token * layout.hidden();
    y_rows[t] = out + (r.token * top_k + r.rank) * layout.hidden();
    a_rows[t] = activations + t * stride;
  }
  ExpertWork work{layout, blob, n, x_rows, y_rows, a_rows, 0, kUpRows, kDownRows};
  const bool small = n * layout.hidden() * layout.ffn() * 3 < kInlineWork;
  if (n >= kPanelRows) work.up_rows = kPanelRows;
  if (small) {
    work.up_rows = layout.tile_ffn();
    work.down_rows = layout.hidden();
  }
  for (ThreadScratch& s : thread_scratch_) {
    s.up.at_least(n * work.up_rows);
    s.up_rows.at_least(n);
  }
  work.units_per_tile = ceil_div(layout.tile_ffn(), work.up_rows);
  const int64_t up_units = layout.tiles() * work.units_per_tile;
  const int64_t down_units = ceil_div(layout.hidden(), work.down_rows);
  const auto up = [&](int64_t unit, int thread) { expert_up(work, unit, thread); };
  const auto down = [&](int64_t unit, int thread) { expert_down(work, unit, thread); };
  if (small) {
    for (int64_t i = 0; i < up_units; ++i) up(i, 0);
    for (int64_t i = 0; i < down_units; ++i) down(i, 0);
  } else {
    pool_.run(up_units, up);
    pool_.run(down_units, down);
  }
}

}  // namespace moestro::kernels::cpu
