// Attention of sequences that decode.

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

GpuRow measure(const GpuBench& bench, DType dtype, double memory_rate, GpuRow row) {
  const GpuSizes& s = bench.sizes;
  auto ops = kernels::cuda::CudaOps::create(bench.functions, {.deterministic = false});
  if (!ops.is_ok()) {
    row.failed = ops.status().message();
    return row;
  }
  DeviceClock clock(bench.functions, (*ops)->stream());
  const kernels::AttentionShape shape{
      .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .window = 0, .scale = 0.1f, .sinks = 0};
  const int64_t blocks_each = ceil_div(s.context, kernels::kKvBlockTokens), blocks = blocks_each * s.sequences;
  const auto cache_bytes = static_cast<uint64_t>(blocks * kernels::kv_block_bytes(shape, dtype));
  const kernels::KvView cache{clock.allocate(cache_bytes), dtype, blocks};
  if (cache.data != nullptr) clock.note("fill", bench.functions.fill(cache.data, 0x3c, cache_bytes, clock.stream()));
  // Blocks lie anywhere, as they do once sequences have come and gone.
  std::vector<uint32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0u);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  std::vector<kernels::AttentionSequence> sequences;
  for (int64_t i = 0; i < s.sequences; ++i)
    sequences.push_back(
        {i, 1, s.context - 1,
         std::span(table).subspan(static_cast<size_t>(i * blocks_each), static_cast<size_t>(blocks_each))});
  const std::vector<float> query(static_cast<size_t>(s.sequences * s.heads * s.head_dim), 0.01f);
  const float* q = clock.of(std::span(query));
  auto* out = static_cast<float*>(clock.allocate(query.size() * sizeof(float)));
  const auto work = [&] { (*ops)->attention(shape, sequences, q, nullptr, cache, out); };
  const int times = clock.status().is_ok() ? clock.times_for(work, s.seconds_least) : 1;
  std::vector<double> runs;
  for (int i = 0; i < s.repeats && clock.status().is_ok() && (*ops)->status().is_ok(); ++i)
    runs.push_back(clock.seconds(work, times));
  const Status status = clock.status().is_ok() ? (*ops)->wait() : clock.status();
  row.failed = status.is_ok() ? "" : status.message();
  if (status.is_ok()) row.value = static_cast<double>(cache_bytes) / median(runs) / 1e9;
  row.ceiling = memory_rate / 1e9;
  return row;
}

}  // namespace

std::vector<GpuRow> attention_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  for (const DType dtype : bench.sizes.kv_dtypes)
    rows.push_back(measure(
        bench, dtype, memory_rate,
        {.what = "attention, " + std::to_string(bench.sizes.sequences) + " sequences of " +
                 std::to_string(bench.sizes.context) + " tokens decode, cache of " + std::string(dtype_name(dtype)),
         .value = 0,
         .unit = "GB/s",
         .ceiling = 0,
         .ceiling_is = "device memory",
         .aim = dtype == DType::kBF16 ? 0.75 : 0,
         .failed = ""}));
  return rows;
}

}  // namespace moestro::bench
