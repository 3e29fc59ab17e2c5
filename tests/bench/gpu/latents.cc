// Latent attention of sequences that decode, against memory: latents and the weights of keys and values, once each.

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

using kernels::cuda::CudaOps;

/// Seconds; 0 after an error. `bytes`: of what has to be read.
double measure(const GpuBench& bench, CudaOps& ops, const GpuSizes::LatentDecode& d, double& bytes,
               std::string& failed) {
  const GpuSizes& s = bench.sizes;
  DeviceClock clock(bench.functions, ops.stream());
  const kernels::LatentShape shape{.heads = d.heads,
                                   .kv_rank = s.kv_rank,
                                   .nope_dim = s.nope_dim,
                                   .rope_dim = s.rope_dim,
                                   .value_dim = s.value_dim,
                                   .scale = 0.1f,
                                   .interleaved = true};
  const int64_t blocks_each = ceil_div(d.context, kernels::kKvBlockTokens), blocks = blocks_each * d.sequences,
                rows = d.heads * shape.expanded_dim();
  const auto filled = [&](int64_t count) {  // with small numbers of bf16
    void* to = clock.allocate(static_cast<uint64_t>(count));
    if (to != nullptr) clock.note("fill", bench.functions.fill(to, 0x3c, static_cast<uint64_t>(count), clock.stream()));
    return to;
  };
  const int64_t cache_bytes = blocks * kernels::latent_block_bytes(shape, DType::kBF16),
                weight_bytes = rows * s.kv_rank * dtype_bytes(DType::kBF16);
  bytes = static_cast<double>(cache_bytes + weight_bytes);
  const kernels::KvView cache{filled(cache_bytes), DType::kBF16, blocks};
  const kernels::Weight kv_b{filled(weight_bytes), DType::kBF16, rows, s.kv_rank, nullptr};
  // Blocks lie anywhere, as they do once sequences have come and gone.
  std::vector<uint32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0u);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  std::vector<kernels::AttentionSequence> sequences;
  for (int64_t i = 0; i < d.sequences; ++i)
    sequences.push_back(
        {i, 1, d.context - 1,
         std::span(table).subspan(static_cast<size_t>(i * blocks_each), static_cast<size_t>(blocks_each))});
  const std::vector<float> query(static_cast<size_t>(d.sequences * d.heads * shape.query_dim()), 0.01f),
      angles(static_cast<size_t>(d.sequences * s.rope_dim / 2), 0.7f);
  const float *q = clock.of(std::span(query)), *angle = clock.of(std::span(angles));
  auto* out = static_cast<float*>(
      clock.allocate(static_cast<uint64_t>(d.sequences * d.heads * s.value_dim) * sizeof(float)));
  return median_seconds(
      bench, clock, ops, [&] { ops.latent_attention(shape, sequences, q, angle, angle, kv_b, cache, out); }, failed);
}

}  // namespace

std::vector<GpuRow> latent_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  for (const GpuSizes::LatentDecode& d : bench.sizes.latent_decodes) {
    const auto add = [&](CudaOps& ops) {
      GpuRow row = memory_bound_row(
          "latent attention, " + std::to_string(d.heads) + " heads, " + std::to_string(d.sequences) +
              (d.sequences == 1 ? " sequence" : " sequences") + " of " + std::to_string(d.context) + " tokens decode" +
              (d.sequences == 1 ? "s" : "") + ", cache of bf16" + (d.deterministic ? ", in f32" : ""),
          memory_rate);
      double bytes = 0;
      if (const double took = measure(bench, ops, d, bytes, row.failed); took > 0) row.value = bytes / took / 1e9;
      rows.push_back(std::move(row));
    };
    with_ops(bench, "latent attention", rows, add, d.deterministic);
  }
  return rows;
}

}  // namespace moestro::bench
