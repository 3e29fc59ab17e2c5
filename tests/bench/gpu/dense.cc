// Dense products of few and many tokens with weights of bf16, as the engine asks for them.

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

GpuRow measure(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t tokens, double product_rate) {
  const int64_t width = bench.sizes.hidden;
  GpuRow row{.what = "a matrix of " + std::to_string(width) + " x " + std::to_string(width) + " of bf16 on " +
                     std::to_string(tokens) + (tokens == 1 ? " token" : " tokens"),
             .value = 0,
             .unit = "TFLOP/s",
             .ceiling = product_rate / 1e12,
             .ceiling_is = bench.dense ? bench.dense_name + ", the same product" : "the dense product of experts",
             .aim = 0,
             .failed = ""};
  DeviceClock clock(bench.functions, ops.stream());
  const auto numbers = static_cast<uint64_t>(tokens * width);
  const void* weight = clock.random_bf16(static_cast<uint64_t>(width * width) * 2, 0.03f);
  const std::vector<float> rows(numbers, 0.5f);
  const float* x = clock.of(std::span(rows));
  auto* y = static_cast<float*>(clock.allocate(numbers * sizeof(float)));
  const kernels::Weight w{weight, DType::kBF16, width, width, nullptr};
  const double operations = 2.0 * static_cast<double>(numbers) * static_cast<double>(width);
  const double took = median_seconds(
      bench, clock, ops, [&] { ops.matmul(x, tokens, w, nullptr, y, kernels::Activations::kRounded); }, row.failed);
  if (took > 0) row.value = operations / took / 1e12;
  if (!bench.dense || !row.failed.empty()) return row;
  const void* rounded = clock.random_bf16(numbers * 2, 1.0f);
  Status refused;
  const double best = median_seconds(
      bench, clock, ops,
      [&] {
        if (const Status status = bench.dense(rounded, weight, y, tokens, width, width, clock.stream());
            !status.is_ok() && refused.is_ok())
          refused = status;
      },
      row.failed);
  if (!refused.is_ok()) row.failed = refused.message();
  row.ceiling = best > 0 ? operations / best / 1e12 : 0;
  return row;
}

}  // namespace

std::vector<GpuRow> dense_rows(const GpuBench& bench, double product_rate) {
  std::vector<GpuRow> rows;
  for (const int64_t tokens : bench.sizes.dense_tokens)
    with_ops(bench, "dense products", rows,
             [&](kernels::cuda::CudaOps& ops) { rows.push_back(measure(bench, ops, tokens, product_rate)); });
  return rows;
}

}  // namespace moestro::bench
