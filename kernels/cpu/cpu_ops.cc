#include "kernels/cpu/cpu_ops.h"

#include <algorithm>

namespace moestro::kernels::cpu {

namespace {
/// Weights that a chunk of a product streams from memory: a few microseconds of work.
constexpr int64_t kChunkBytes = 128 * 1024;
/// Weights that are widened at once, a column block of a panel's rows: they stay in the core's own caches until they
/// are multiplied. With fewer rows the activations, which are more than the first cache holds, would be read too often.
constexpr int64_t kWidenedNumbers = kPanelRows * kColumnBlock;
/// So few tokens' activations stay in the first cache: then whole rows are widened, as they lie in memory.
constexpr int64_t kWidenedWholeTokens = 3, kWidenedRowsMin = 8;
/// Exceptions of a task that a thread has room for from the start: hundreds of times what a normal distribution has.
/// More cost an allocation, once.
constexpr int64_t kExceptionsReserved = 8 * 1024;
}  // namespace

CpuOps::CpuOps(OpsOptions resolved)
    : options_(resolved),
      kernels_(kernel_table(resolved.isa)),
      pool_(resolved.threads, resolved.cpus, resolved.nodes),
      thread_scratch_(static_cast<size_t>(resolved.threads)) {
  for (ThreadScratch& s : thread_scratch_) s.panel.at_least(kPanelFloats);
}

bool CpuOps::supports(DType) const {
  return true;
}

CpuOps::Product CpuOps::product(DType weights, Activations activations, int64_t tokens) const {
  const auto dtype = static_cast<size_t>(computed_as(weights));
  const bool in_12_bits = weights == DType::kBF16In12;
  const bool may_round = !options_.deterministic && activations == Activations::kRounded;
  const RoundedProduct& rounded = kernels_.rounded[dtype];
  if (is_blocks(weights)) {
    const RoundedProduct& fast = kernels_.rounded_blocks[block_index(weights)];
    if (may_round && fast.round && tokens < fast.exact_from) return {fast.product, &fast, false, weights};
    // Those of few tokens may have other orders of sums.
    ProductByTokens run = may_round ? fast.product : ProductByTokens{};
    run.many = kernels_.product[dtype];
    return {run, nullptr, false, weights};
  }
  if (may_round && rounded.round && tokens < rounded.exact_from)
    return {rounded.product, &rounded, in_12_bits, DType::kF32};
  return {{.many = kernels_.product[dtype]}, nullptr, in_12_bits, DType::kF32};
}

namespace {
bf16_in_12::Exponents exponents_of(const WeightRun& run) {
  return bf16_in_12::read_exponents(reinterpret_cast<const std::byte*>(run.parameters), run.matrix_rows * run.cols);
}
}  // namespace

static_assert(kBlockKernels == static_cast<int64_t>(kBlockFormats));
static_assert(kBlockIn12Columns == bf16_in_12::kBlockColumns && kBlockIn12Bytes == bf16_in_12::kBlockBytes);

void CpuOps::make_room_to_widen(const Product& product, const WeightRun* runs, int64_t run_count) {
  if (product.widens_blocks()) {
    for (ThreadScratch& s : thread_scratch_) s.widened_blocks.at_least(kWidenedNumbers);
    return;
  }
  if (!product.in_12_bits) return;
  int64_t exceptions = kExceptionsReserved;
  if (pool_.threads() == 1)  // which takes a whole matrix at once
    for (int64_t i = 0; i < run_count; ++i) exceptions = std::max(exceptions, exponents_of(runs[i]).count + 1);
  for (ThreadScratch& s : thread_scratch_) {
    if (!lists_exceptions(product)) {
      s.widened.at_least(kWidenedNumbers);
      continue;
    }
    s.listed_runs.at_least(run_count);
    s.exceptions.at_least(exceptions);
  }
}

bool CpuOps::lists_exceptions(const Product& product) const {
  return product.rounding && kernels_.product_in_12_bits.few;
}

// A result is, bit by bit, what the same weights stored as bf16 give.
void CpuOps::multiply(const Product& product, const ProductTask& task, int thread) {
  if (product.widens_blocks() && task.n > product.run.few_tokens) return multiply_blocks(product, task, thread);
  if (!product.in_12_bits) return product.run.of(task.n)(task);
  if (lists_exceptions(product)) return multiply_in_12_bits(task, thread);
  multiply_widened(product, task, thread);
}

void CpuOps::multiply_in_12_bits(const ProductTask& task, int thread) {
  ThreadScratch& own = scratch(thread);
  WeightRun* const runs = own.listed_runs.at_least(task.run_count);
  int64_t listed_max = 0;
  for (int64_t i = 0; i < task.run_count; ++i) {
    const auto exponents = exponents_of(task.runs[i]);
    const int64_t begin = task.first_row * task.runs[i].cols, end = begin + task.rows * task.runs[i].cols;
    listed_max += std::max<int64_t>(
                      0, bf16_in_12::first_exception(exponents, end) - bf16_in_12::first_exception(exponents, begin)) +
                  1;
  }
  WeightException* next = own.exceptions.at_least(listed_max);
  for (int64_t i = 0; i < task.run_count; ++i) {
    WeightRun& run = runs[i] = task.runs[i];
    run.exceptions = next;
    const auto exponents = exponents_of(run);
    const int64_t begin = task.first_row * run.cols, end = begin + task.rows * run.cols;
    int64_t before = begin - 1;  // kernels rely on the order, which a pack may not have
    for (int64_t e = bf16_in_12::first_exception(exponents, begin), last = bf16_in_12::first_exception(exponents, end);
         e < last; ++e) {
      const int64_t position = bf16_in_12::exception_position(exponents, e);
      if (position <= before || position >= end) continue;
      *next++ = {position / run.cols, position % run.cols, bf16_in_12::with_exponent(0, exponents.exceptions[e])};
      before = position;
    }
    run.exception_count = next - run.exceptions;
    *next++ = {.row = INT64_MAX};
  }
  ProductTask listed = task;
  listed.runs = runs;
  kernels_.product_in_12_bits.of(listed.n)(listed);
}

template <class Number, class Widen>
void CpuOps::multiply_in_blocks(const Product& product, const ProductTask& task, Number* widened, const Widen& widen) {
  MOESTRO_CHECK(product.rounding == nullptr, "rounded rows are multiplied whole");
  int64_t width = 0;
  for (int64_t i = 0; i < task.run_count; ++i) width += task.runs[i].cols;
  WeightRun block;
  block.w = reinterpret_cast<const std::byte*>(widened);
  ProductTask part = task;
  part.runs = &block;
  part.run_count = 1;
  part.first_row = 0;
  part.next_w = nullptr;  // it is in the cache
  const int64_t cols_max =
      task.n > kWidenedWholeTokens ? kColumnBlock
                                   : std::min(round_up(width, kColumnBlock), kWidenedNumbers / kWidenedRowsMin);
  const int64_t rows_max = kWidenedNumbers / cols_max / kWidenedRowsMin * kWidenedRowsMin;
  for (int64_t row = 0; row < task.rows; row += rows_max) {
    part.rows = std::min(rows_max, task.rows - row);
    part.y_offset = task.y_offset + row;
    const WeightRun* run = task.runs;
    int64_t column = 0;  // of the run
    for (int64_t c = 0; c < width; c += cols_max) {
      block.cols = std::min(cols_max, width - c);
      const int64_t stride = round_up(block.cols, bf16_in_12::kBlockColumns);  // the last of a row is widened whole
      block.row_bytes = stride * static_cast<int64_t>(sizeof *widened);
      for (int64_t at = 0; at < block.cols;) {
        const int64_t cols = std::min(block.cols - at, run->cols - column), first = task.first_row + row;
        widen(*run, bf16_in_12::Cut{first, first + part.rows, column, column + cols}, widened + at, stride);
        at += cols, column += cols;
        if (column == run->cols) ++run, column = 0;
      }
      part.x_offset = task.x_offset + c;
      part.accumulate = task.accumulate || c > 0;
      part.bias = task.bias && c + block.cols == width ? task.bias + row : nullptr;
      product.run.of(part.n)(part);
    }
  }
}

void CpuOps::multiply_widened(const Product& product, const ProductTask& task, int thread) {
  multiply_in_blocks(
      product, task, scratch(thread).widened.at_least(kWidenedNumbers),
      [&](const WeightRun& run, const bf16_in_12::Cut& cut, uint16_t* to, int64_t stride) {
        const auto exponents = exponents_of(run);
        kernels_.widen_bf16({run.w + cut.first_row * run.row_bytes +
                                 cut.first_column / bf16_in_12::kBlockColumns * bf16_in_12::kBlockBytes,
                             run.row_bytes, cut.end_row - cut.first_row,
                             bf16_in_12::blocks_of(cut.end_column - cut.first_column)},
                            exponents.of_code, to, stride);
        bf16_in_12::put_exceptions(exponents, run.cols, cut, stride, to);
      });
}

// As f32, so a result is, bit by bit, what f32 weights give.
void CpuOps::multiply_blocks(const Product& product, const ProductTask& task, int thread) {
  const BlockShape shape = block_shape(product.blocks);
  multiply_in_blocks(product, task, scratch(thread).widened_blocks.at_least(kWidenedNumbers),
                     [&](const WeightRun& run, const bf16_in_12::Cut& cut, float* to, int64_t stride) {
                       for (int64_t r = cut.first_row; r < cut.end_row; ++r, to += stride)
                         dequantise(product.blocks)(
                             run.w + r * run.row_bytes + cut.first_column / shape.columns * shape.bytes,
                             (cut.end_column - cut.first_column) / shape.columns, to);
                     });
}

const RoundedRows* CpuOps::round_rows(const RoundedProduct& rounding, const float* const* x, int64_t n,
                                      int64_t cols, int64_t run_cols, RoundedScratch& to) {
  const int64_t groups = quant_groups(cols);
  to.rows.tokens = n;
  to.rows.group_count = groups;
  to.rows.run_cols = run_cols;
  const int64_t whole_runs = (cols - 1) / run_cols;
  const int64_t spans = whole_runs * ceil_div(run_cols, RoundedRows::kSpanColumns) +
                        ceil_div(cols - whole_runs * run_cols, RoundedRows::kSpanColumns);
  const int64_t padded_cols = rounding.spans ? spans * RoundedRows::kSpanColumns : cols;
  to.rows.blocks = to.blocks.at_least(ceil_div(padded_cols, rounding.block_columns) * rounding.blocks * n *
                                          RoundedRows::kBlockBytes +
                                      RoundedRows::kSpareBytes);
  if (rounding.spans) to.rows.spans = to.spans.at_least(spans * n * RoundedRows::kSpanNumbers);
  else to.rows.groups = to.groups.at_least(n * groups * 3 * static_cast<int64_t>(sizeof(float)));
  over_ranges(n, 1, n * cols, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t) rounding.round(x[t], cols, t, to.rows);
  });
  return &to.rows;
}

void CpuOps::matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
                    Activations activations) {
  if (n <= 0 || w.rows <= 0) return;
  MOESTRO_CHECK(w.cols % block_shape(w.dtype).columns == 0, "rows of whole blocks");
  const float** x_rows = x_rows_.at_least(n);
  float** y_rows = y_rows_.at_least(n);
  for (int64_t t = 0; t < n; ++t) {
    x_rows[t] = x + t * w.cols;
    y_rows[t] = y + t * w.rows;
  }
  const Product product = this->product(w.dtype, activations, n);
  ProductTask whole;
  whole.x = x_rows;
  if (product.rounding) whole.rounded = round_rows(*product.rounding, x_rows, n, w.cols, w.cols, rounded_x_);
  const WeightRun run{static_cast<const std::byte*>(w.data), row_bytes(w.dtype, w.cols), w.parameters,
                      quant_groups(w.cols) * group_parameters(w.dtype), w.cols, w.rows};
  whole.n = n;
  whole.runs = &run;
  whole.run_count = 1;
  make_room_to_widen(product, &run, 1);
  whole.y = y_rows;
  const auto range = [&](int64_t first, int64_t end, int thread) {
    ProductTask task = whole;
    task.first_row = first;
    task.rows = end - first;
    task.bias = bias ? bias + first : nullptr;
    task.y_offset = first;
    task.panel = panel(thread);
    multiply(product, task, thread);
  };
  if (n * w.rows * w.cols < kInlineWork || pool_.threads() == 1) return range(0, w.rows, 0);
  const int64_t fair = ceil_div(w.rows, int64_t{4} * pool_.threads());
  const int64_t wanted = n >= kPanelRows ? kPanelRows : std::min(fair, ceil_div(kChunkBytes, run.row_bytes));
  const int64_t chunk = round_up(std::max<int64_t>(wanted, 1), 8);
  pool_.run_at(
      ceil_div(w.rows, chunk), [&](int64_t i) { return weight_nodes_.node_of(run.w + i * chunk * run.row_bytes); },
      [&](int64_t i, int thread) { range(i * chunk, std::min(w.rows, (i + 1) * chunk), thread); });
}

void CpuOps::gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) {
  MOESTRO_CHECK(!has_parameters(table.dtype), "a table has no parameters");
  const int64_t bytes = row_bytes(table.dtype, table.cols);
  for (size_t i = 0; i < ids.size(); ++i) {
    MOESTRO_CHECK(ids[i] >= 0 && ids[i] < table.rows, "row of a table");
    const auto* row = static_cast<const std::byte*>(table.data) + ids[i] * bytes;
    float* to = y + static_cast<int64_t>(i) * table.cols;
    if (is_blocks(table.dtype)) dequantise(table.dtype)(row, table.cols / block_shape(table.dtype).columns, to);
    else kernels_.to_f32[static_cast<size_t>(table.dtype)](row, table.cols, to);
  }
}

void CpuOps::rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) {
  over_ranges(n, 1, n * dim, [&](int64_t first, int64_t end, int) {
    kernels_.rms_norm(x + first * dim, end - first, dim, weight, eps, y + first * dim);
  });
}

void CpuOps::layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                        float* y) {
  over_ranges(n, 1, n * dim, [&](int64_t first, int64_t end, int) {
    kernels_.layer_norm(x + first * dim, end - first, dim, weight, bias, eps, y + first * dim);
  });
}

void CpuOps::sum_squares(const float* x, int64_t n, int64_t dim, float* sums) {
  over_ranges(n, 1, n * dim, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t) sums[t] = kernels_.sum_squares(x + t * dim, dim);
  });
}

void CpuOps::rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                  const float* sin) {
  const int64_t half = rotary_dim / 2;
  over_ranges(n, 1, n * heads * rotary_dim, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t)
      kernels_.rope(x + t * heads * head_dim, heads, head_dim, half, cos + t * half, sin + t * half);
  });
}

void CpuOps::combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden,
                     float* y) {
  over_ranges(n, 1, n * top_k * hidden, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t)
      kernels_.combine(rows + t * top_k * hidden, weights + t * top_k, top_k, hidden, y + t * hidden);
  });
}

void CpuOps::silu_mul(float* gate, const float* up, int64_t count) {
  over_ranges(count, 64, count * 4, [&](int64_t first, int64_t end, int) {
    kernels_.silu_mul(gate + first, up + first, end - first);
  });
}

void CpuOps::relu(float* x, int64_t count) {
  over_ranges(count, 64, count, [&](int64_t first, int64_t end, int) { kernels_.relu(x + first, end - first); });
}

void CpuOps::exponentials(const float* x, int64_t count, float shift, float factor, float* y) {
  over_ranges(count, 64, count, [&](int64_t first, int64_t end, int) {
    kernels_.exponentials(x + first, end - first, shift, factor, y + first);
  });
}

void CpuOps::add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) {
  over_ranges(n, 1, n * dim, [&](int64_t first, int64_t end, int) {
    for (int64_t t = first; t < end; ++t)
      kernels_.add_scaled(x + t * dim, logit ? logit + t : nullptr, dim, y + t * dim);
  });
}

void CpuOps::scale(float* x, int64_t count, float factor) {
  over_ranges(count, 16, count,
              [&](int64_t first, int64_t end, int) { kernels_.scale_by(x + first, end - first, factor); });
}

void CpuOps::clamp(float* x, int64_t count, float limit) {
  over_ranges(count, 64, count,
              [&](int64_t first, int64_t end, int) { kernels_.clamp(x + first, end - first, limit); });
}

}  // namespace moestro::kernels::cpu

namespace moestro::kernels {

std::unique_ptr<Ops> make_cpu_ops(OpsOptions options) {
  if (!has_isa(options.isa)) options.isa = best_isa();
  if (options.threads <= 0) options.threads = cpu::physical_cores();
  return std::make_unique<cpu::CpuOps>(options);
}

}  // namespace moestro::kernels
