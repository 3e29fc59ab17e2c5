#include <algorithm>
#include <iterator>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

namespace {
/// Rows of a unit of few tokens: long enough to be a stream of its own, and at least four units a thread.
constexpr int64_t kUnitRowsMin = 32, kUnitRowsMax = 128;

/// Phase 2 tile by tile reads memory front to back, and each tile where it lies; but sums of parts have to be written,
/// read and added, which more rows, whose arithmetic takes longer than the reading, do not win back (measured on AVX2
/// and AVX-512 at shapes from 1024 x 384 to 4096 x 14336: up to 1.15 times as fast below this, as slow as 0.65 times
/// above).
bool pays_by_tile(const ExpertLayout& layout, int64_t rows) {
  return layout.tiles() > 2 && rows <= (is_quantised(layout.dtype()) || is_blocks(layout.formats().down) ? 1 : 3);
}

int64_t unit_rows(int64_t rows, int threads) {
  return std::clamp(rows / (4 * threads) / kUnitRowsMin * kUnitRowsMin, kUnitRowsMin, kUnitRowsMax);
}

/// The part of a tile at `values` (and `parameters`, where there are any), `rows` x `cols`.
WeightRun run_of(DType dtype, const std::byte* tile, int64_t values, int64_t parameters, int64_t rows, int64_t cols) {
  const auto* numbers = parameters > 0 ? reinterpret_cast<const uint16_t*>(tile + parameters) : nullptr;
  return {tile + values, row_bytes(dtype, cols), numbers, quant_groups(cols) * group_parameters(dtype), cols, rows};
}
}  // namespace

/// One expert on its rows. Phase 1: activations = unit(gate x, up x), in units of ffn rows; phase 2: down,
/// in units of hidden rows, or, of few rows, of each tile's hidden rows, whose sums are added in the tiles' order.
/// gate, up: a run for each tile, of its rows; down: the runs of one product. Without a gate, up is in its place.
struct CpuOps::ExpertWork {
  const ExpertLayout& layout;
  Product by_gate, by_up, by_down;
  int64_t rows;
  const float* const* x;
  const RoundedRows *rounded_x, *rounded_up;  ///< for gate and for up
  float* const* a;  ///< activations, `ffn` wide
  const RoundedRows* rounded_a;
  float* const* y;
  const WeightRun *gate, *up, *down;
  int64_t units_per_tile;
  int64_t up_rows, down_rows;
  const GatedUnit& gated;
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;  ///< of row 0; null: none

  int64_t up_units() const { return layout.tiles() * units_per_tile; }
  int64_t down_units() const { return ceil_div(layout.hidden(), down_rows); }
  /// What a unit of phase 1 reads first.
  const std::byte* up_weights(int64_t unit) const {
    const WeightRun& tile = gate[unit / units_per_tile];
    return tile.w + unit % units_per_tile * up_rows * tile.row_bytes;
  }
};

void CpuOps::join(const GatedUnit& unit, float* gate, const float* up, int64_t count) const {
  if (unit.kind == GatedUnit::Kind::kSilu) return kernels_.silu_mul(gate, up, count);
  if (unit.kind == GatedUnit::Kind::kRelu) return kernels_.relu(gate, count);
  kernels_.clamped_swiglu(gate, up, count, unit.alpha, unit.limit);
}

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
  const std::byte* const next_unit = unit + 1 < work.up_units() ? work.up_weights(unit + 1) : nullptr;
  const bool gated = work.layout.is_gated();
  task.next_w = gated ? work.up[i].w + first * work.up[i].row_bytes : next_unit;
  task.y = work.a;
  task.y_offset = tile_first + first;
  task.bias = work.gate_bias ? work.gate_bias + tile_first + first : nullptr;
  task.panel = panel(thread);
  multiply(work.by_gate, task, thread);
  const auto join_rows = [&] {
    for (int64_t t = 0; t < work.rows; ++t) join(work.gated, work.a[t] + tile_first + first, up_rows[t], count);
  };
  if (!gated) return join_rows();
  task.runs = work.up + i;
  task.rounded = work.rounded_up;
  task.bias = work.up_bias ? work.up_bias + tile_first + first : nullptr;
  task.y = up_rows;
  task.y_offset = 0;
  task.next_w = next_unit;  // a thread takes neighbours
  multiply(work.by_up, task, thread);
  join_rows();
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
  task.bias = work.down_bias ? work.down_bias + task.first_row : nullptr;
  task.y = work.y;
  task.y_offset = task.first_row;
  task.panel = panel(thread);
  multiply(work.by_down, task, thread);
}

void CpuOps::expert_down_by_tile(const ExpertWork& work) {
  const ExpertLayout& layout = work.layout;
  const int64_t tiles = layout.tiles(), hidden = layout.hidden(), n = work.rows;
  const auto part_of = [&](int64_t tile, int64_t t) { return tile * n + t; };
  if (std::ssize(rounded_tiles_) < tiles) rounded_tiles_.resize(static_cast<size_t>(tiles));
  float* parts = tile_parts_.at_least(tiles * n * hidden);
  float** part_rows = tile_rows_.at_least(tiles * n);
  const float** a_rows = tile_a_rows_.at_least(tiles * n);
  for (int64_t i = 0; i < tiles; ++i) {
    for (int64_t t = 0; t < n; ++t) {
      part_rows[part_of(i, t)] = parts + part_of(i, t) * hidden;
      a_rows[part_of(i, t)] = work.a[t] + i * layout.tile_ffn();
    }
    if (work.by_down.rounding)
      round_rows(*work.by_down.rounding, a_rows + part_of(i, 0), n, work.down[i].cols, work.down[i].cols,
                 rounded_tiles_[static_cast<size_t>(i)]);
  }
  const int64_t wanted = ceil_div(int64_t{4} * pool_.threads(), tiles);  // units of a tile
  const int64_t rows = std::min(hidden, round_up(ceil_div(hidden, wanted), kUnitRowsMin));
  const int64_t units = ceil_div(hidden, rows);
  const auto unit_weights = [&](int64_t unit) {
    const WeightRun& run = work.down[unit / units];
    return run.w + unit % units * rows * run.row_bytes;
  };
  pool_.run_at(
      tiles * units, [&](int64_t unit) { return weight_nodes_.node_of(unit_weights(unit)); },
      [&](int64_t unit, int thread) {
        const int64_t i = unit / units;
        ProductTask task;
        task.x = a_rows + part_of(i, 0);
        task.rounded = work.by_down.rounding ? &rounded_tiles_[static_cast<size_t>(i)].rows : nullptr;
        task.n = n;
        task.runs = work.down + i;
        task.run_count = 1;
        task.first_row = unit % units * rows;
        task.rows = std::min(rows, hidden - task.first_row);
        task.next_w = unit + 1 < tiles * units ? unit_weights(unit + 1) : nullptr;
        task.bias = work.down_bias && i == 0 ? work.down_bias + task.first_row : nullptr;
        task.y = part_rows + part_of(i, 0);
        task.y_offset = task.first_row;
        task.panel = panel(thread);
        multiply(work.by_down, task, thread);
      });
  over_ranges(hidden, 16, tiles * n * hidden, [&](int64_t first, int64_t end, int) {
    for (int64_t t = 0; t < n; ++t) {
      float* y = work.y[t];
      std::copy(part_rows[t] + first, part_rows[t] + end, y + first);
      for (int64_t i = 1; i < tiles; ++i) {
        const float* part = part_rows[part_of(i, t)];
        for (int64_t r = first; r < end; ++r) y[r] += part[r];
      }
    }
  });
}

void CpuOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                        std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& gated) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n == 0) return;
  MOESTRO_CHECK(layout.is_gated() == (gated.kind != GatedUnit::Kind::kRelu), "a gate has a unit that takes one");
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
    up_weights[i] = run_of(layout.formats().up, base, tile.up, tile.up_scales, tile.ffn, layout.hidden());
    gate[i] = layout.is_gated()
                  ? run_of(layout.formats().gate, base, tile.gate, tile.gate_scales, tile.ffn, layout.hidden())
                  : up_weights[i];
    down_weights[i] = run_of(layout.formats().down, base, tile.down, tile.down_scales, layout.hidden(), tile.ffn);
  }
  const auto [gate_format, up_format, down_format] = layout.formats();
  MOESTRO_CHECK(layout.hidden() % block_shape(gate_format).columns == 0 &&
                    layout.hidden() % block_shape(up_format).columns == 0 &&
                    layout.ffn() % block_shape(down_format).columns == 0,
                "rows of whole blocks");
  const Product by_gate = product(gate_format, Activations::kRounded, n),
                by_up = product(up_format, Activations::kRounded, n),
                by_down = product(down_format, Activations::kRounded, n);
  make_room_to_widen(by_gate, gate, 1);
  make_room_to_widen(by_up, up_weights, 1);
  make_room_to_widen(by_down, down_weights, layout.tiles());
  const auto round = [&](const Product& by, const float* const* values, int64_t cols, int64_t run_cols,
                         RoundedScratch& to) {
    return by.rounding ? round_rows(*by.rounding, values, n, cols, run_cols, to) : nullptr;
  };
  const RoundedRows* rounded_x = round(by_gate, x_rows, layout.hidden(), layout.hidden(), rounded_x_);
  const bool rounds_alike = by_up.rounding && by_gate.rounding && by_up.rounding->round == by_gate.rounding->round;
  const RoundedRows* rounded_up = rounds_alike ? rounded_x : round(by_up, x_rows, layout.hidden(), layout.hidden(),
                                                                         rounded_up_);
  ExpertWork work{layout, by_gate,    by_up,        by_down, n, x_rows, rounded_x, rounded_up, a_rows, nullptr, y_rows,
                  gate,   up_weights, down_weights, 0,
                  unit_rows(layout.ffn(), pool_.threads()), unit_rows(layout.hidden(), pool_.threads()), gated};
  if (layout.has_bias()) {
    const ExpertBiases at = layout.biases();
    work.gate_bias = reinterpret_cast<const float*>(blob + (layout.is_gated() ? at.gate : at.up));
    work.up_bias = reinterpret_cast<const float*>(blob + at.up);
    work.down_bias = reinterpret_cast<const float*>(blob + at.down);
  }
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
  const auto over = [&](int64_t units, const auto& weights_of, const auto& unit) {
    if (!small) return pool_.run_at(units, [&](int64_t i) { return weight_nodes_.node_of(weights_of(i)); }, unit);
    for (int64_t i = 0; i < units; ++i) unit(i, 0);
  };
  over(
      work.up_units(), [&](int64_t unit) { return work.up_weights(unit); },
      [&](int64_t unit, int thread) { expert_up(work, unit, thread); });
  // Which way the parts are added depends on how many rows there are.
  if (!small && !options_.deterministic && pays_by_tile(layout, n)) return expert_down_by_tile(work);
  work.rounded_a = round(by_down, a_rows, layout.ffn(), layout.tile_ffn(), rounded_a_);
  over(
      work.down_units(), [](int64_t) { return nullptr; },
      [&](int64_t unit, int thread) { expert_down(work, unit, thread); });
}

}  // namespace moestro::kernels::cpu
