// Attention of sequences that decode, against memory, and of a prompt, against arithmetic.

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

/// The last `tokens` tokens of each of `sequences` sequences of `context` tokens.
struct Case {
  int64_t sequences, context, tokens;
  DType dtype;
};

/// Seconds; 0 after an error. `cache_bytes`: of keys and values.
double measure(const GpuBench& bench, kernels::cuda::CudaOps& ops, const Case& c, double& cache_bytes,
               std::string& failed) {
  const GpuSizes& s = bench.sizes;
  DeviceClock clock(bench.functions, ops.stream());
  const kernels::AttentionShape shape{
      .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = 0, .scale = 0.1f, .sinks = 0};
  const int64_t blocks_each = ceil_div(c.context, kernels::kKvBlockTokens), blocks = blocks_each * c.sequences;
  const auto bytes = static_cast<uint64_t>(blocks * kernels::kv_block_bytes(shape, c.dtype));
  cache_bytes = static_cast<double>(bytes);
  const kernels::KvView cache{clock.allocate(bytes), c.dtype, blocks};
  if (cache.data != nullptr) clock.note("fill", bench.functions.fill(cache.data, 0x3c, bytes, clock.stream()));
  // Blocks lie anywhere, as they do once sequences have come and gone.
  std::vector<uint32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0u);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  std::vector<kernels::AttentionSequence> sequences;
  for (int64_t i = 0; i < c.sequences; ++i)
    sequences.push_back(
        {i * c.tokens, c.tokens, c.context - c.tokens,
         std::span(table).subspan(static_cast<size_t>(i * blocks_each), static_cast<size_t>(blocks_each))});
  const std::vector<float> query(static_cast<size_t>(c.sequences * c.tokens * s.heads * s.head_dim), 0.01f);
  const float* q = clock.of(std::span(query));
  auto* out = static_cast<float*>(clock.allocate(query.size() * sizeof(float)));
  return median_seconds(bench, clock, ops, [&] { ops.attention(shape, sequences, q, nullptr, cache, out); }, failed);
}

GpuRow decode_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, const GpuSizes::Decode& d, bool is_first,
                  double memory_rate) {
  GpuRow row = memory_bound_row(
      "attention, " + std::to_string(d.sequences) + (d.sequences == 1 ? " sequence" : " sequences") + " of " +
          std::to_string(d.context) + " tokens decode, cache of " + std::string(dtype_name(d.cache)),
      memory_rate, is_first ? 0.75 : 0);
  double bytes = 0;
  const double took = measure(bench, ops, {d.sequences, d.context, 1, d.cache}, bytes, row.failed);
  if (took > 0) row.value = bytes / took / 1e9;
  return row;
}

GpuRow prompt_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, double product_rate) {
  const GpuSizes& s = bench.sizes;
  GpuRow row{.what = "attention, a prompt of " + std::to_string(s.prompt) + " tokens, cache of bf16",
             .value = 0,
             .unit = "TFLOP/s",
             .ceiling = product_rate / 1e12,
             .ceiling_is = "the dense product that experts are compared with",
             .aim = 0,
             .failed = ""};
  double bytes = 0;
  const double took = measure(bench, ops, {1, s.prompt, s.prompt, DType::kBF16}, bytes, row.failed);
  const auto seen = static_cast<double>(s.prompt) * static_cast<double>(s.prompt + 1) / 2;
  if (took > 0) row.value = 4 * seen * static_cast<double>(s.heads * s.head_dim) / took / 1e12;
  return row;
}

}  // namespace

std::vector<GpuRow> attention_rows(const GpuBench& bench, double memory_rate, double product_rate) {
  std::vector<GpuRow> rows;
  for (const GpuSizes::Decode& d : bench.sizes.decodes)
    with_ops(bench, "attention", rows, [&](kernels::cuda::CudaOps& ops) {
      rows.push_back(decode_row(bench, ops, d, rows.empty(), memory_rate));
    });
  with_ops(bench, "attention", rows,
           [&](kernels::cuda::CudaOps& ops) { rows.push_back(prompt_row(bench, ops, product_rate)); });
  return rows;
}

}  // namespace moestro::bench
