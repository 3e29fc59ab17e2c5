#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

namespace {
/// Rows of a unit of few tokens: long enough to be a stream of its own, and at least four units a thread.
constexpr int64_t kUnitRowsMin = 32, kUnitRowsMax = 128;

int64_t unit_rows(int64_t rows, int threads) {
  return std::clamp(rows / (4 * threads) / kUnitRowsMin * kUnitRowsMin, kUnitRowsMin, kUnitRowsMax);
}

/// The part of a tile at `values` (and `parameters`), `cols` wide.
WeightRun run_of(const ExpertLayout& layout, const std::byte* tile, int64_t values, int64_t parameters,
                 int64_t cols) {
  const DType dtype = layout.dtype();
  const auto* numbers = is_quantised(dtype) ? reinterpret_cast<const uint16_t*>(tile + parameters) : nullptr;
  return {tile + values, row_bytes(dtype, cols), numbers, quant_groups(cols) * group_parameters(dtype), cols};
}
}  // namespace

/// One expert on its rows. Phase 1: activations = silu(gate x) * up x, in units of ffn rows; phase 2: down,
/// in units of hidden rows. gate, up: a run for each tile, of its rows; down: the runs of one product.
struct CpuOps::ExpertWork {
  const ExpertLayout& layout;
  ProductFn product;
  int64_t rows;
  const float* const* x;
  const RoundedRows* rounded_x;
  float* const* a;  ///< activations, `ffn` wide
  const RoundedRows* rounded_a;
  float* const* y;
  const WeightRun *gate, *up, *down;
  int64_t units_per_tile;
  int64_t up_rows, down_rows;
};

void CpuOps::expert_up(const ExpertWork& work, int64_t unit, int thread) {
  const int64_t i = unit / work.units_per_tile;
  const int64_t first = unit % work.units_per_tile * work.up_rows;
  const int64_t tile_first = i * work.layout.tile_ffn();
  const int64_t tile_rows = std::min(work.layout.tile_ffn(), work.layout.ffn() - tile_first);
  const int64_t count = std::min(work.up_rows, tile_rows - first);
  if (count <= 0) return;  // the last tile may be narrower
  float* up = scratch(thread).up.at_least(work.rows * work.up_rows);
  float** up_rows = scratch(thread).up_rows.at_least(work.rows);
  for (int64_t t = 0; t < work.rows; ++t) up_rows[t] = up + t * work.up_rows;

  ProductTask task;
  task.x = work.x;
  task.rounded = work.rounded_x;
  task.n = work.rows;
  task.runs = work.gate + i;
  task.run_count = 1;
  task.first_row = first;
  task.rows = count;
  task.next_w = work.up[i].w + first * work.up[i].row_bytes;
  task.y = work.a;
  task.y_offset = tile_first + first;
  task.panel = panel(thread);
  work.product(task);
  task.runs = work.up + i;
  task.y = up_rows;
  task.y_offset = 0;
  const int64_t later = unit + 1;  // a thread takes neighbours
  task.next_w = nullptr;
  if (later < work.layout.tiles() * work.units_per_tile) {
    const WeightRun& next = work.gate[later / work.units_per_tile];
    task.next_w = next.w + later % work.units_per_tile * work.up_rows * next.row_bytes;
  }
  work.product(task);
  for (int64_t t = 0; t < work.rows; ++t) kernels_.silu_mul(work.a[t] + tile_first + first, up_rows[t], count);
}

void CpuOps::expert_down(const ExpertWork& work, int64_t unit, int thread) {
  ProductTask task;
  task.x = work.a;
  task.rounded = work.rounded_a;
  task.n = work.rows;
  task.runs = work.down;
  task.run_count = work.layout.tiles();
  task.first_row = unit * work.down_rows;
  task.rows = std::min(work.down_rows, work.layout.hidden() - task.first_row);
  task.next_w = work.down[0].w + (task.first_row + task.rows) * work.down[0].row_bytes;
  task.y = work.y;
  task.y_offset = task.first_row;
  task.panel = panel(thread);
  work.product(task);
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
  WeightRun* gate = gate_runs_.at_least(layout.tiles());
  WeightRun* up_weights = up_runs_.at_least(layout.tiles());
  WeightRun* down_weights = down_runs_.at_least(layout.tiles());
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile tile = layout.tile(i);
    const std::byte* base = blob + tile.offset;
    gate[i] = run_of(layout, base, tile.gate, tile.gate_scales, layout.hidden());
    up_weights[i] = run_of(layout, base, tile.up, tile.up_scales, layout.hidden());
    down_weights[i] = run_of(layout, base, tile.down, tile.down_scales, tile.ffn);
  }
  const Product product = this->product(layout.dtype(), Activations::kRounded);
  const auto round = [&](const float* const* values, int64_t cols, RoundedScratch& to) {
    return product.rounding ? round_rows(*product.rounding, values, n, cols, to) : nullptr;
  };
  ExpertWork work{layout,  product.run, n,    x_rows,     round(x_rows, layout.hidden(), rounded_x_), a_rows,
                  nullptr, y_rows,      gate, up_weights, down_weights,                               0,
                  unit_rows(layout.ffn(), pool_.threads()), unit_rows(layout.hidden(), pool_.threads())};
  const bool small = n * layout.hidden() * layout.ffn() * 3 < kInlineWork;
  if (n >= kPanelRows) work.up_rows = work.down_rows = kPanelRows;
  if (small) {
    work.up_rows = layout.tile_ffn();
    work.down_rows = layout.hidden();
  }
  for (ThreadScratch& s : thread_scratch_) {
    s.up.at_least(n * work.up_rows);
    s.up_rows.at_least(n);
  }
  work.units_per_tile = ceil_div(layout.tile_ffn(), work.up_rows);
  const auto over = [&](int64_t units, const auto& unit) {
    if (!small) return pool_.run(units, unit);
    for (int64_t i = 0; i < units; ++i) unit(i, 0);
  };
  over(layout.tiles() * work.units_per_tile, [&](int64_t unit, int thread) { expert_up(work, unit, thread); });
  work.rounded_a = round(a_rows, layout.ffn(), rounded_a_);
  over(ceil_div(layout.hidden(), work.down_rows), [&](int64_t unit, int thread) { expert_down(work, unit, thread); });
}

}  // namespace moestro::kernels::cpu
