// Drawing tokens from logits on the device.

#include <random>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

struct Way {
  const char* name;
  MoestroCudaSampling how;  ///< temperature 0: greedy
};

constexpr Way kWays[] = {{"greedy", {0, 0, 1, 0, 7, 0, 0}},
                         {"at a temperature", {0.8f, 0, 1, 0, 7, 0, 0}},
                         {"top_k 50", {0.8f, 50, 1, 0, 7, 0, 0}},
                         {"top_p 0.95", {0.8f, 0, 0.95f, 0, 7, 0, 0}}};

void measure(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t n, double memory_rate,
             std::vector<GpuRow>& rows) {
  const int64_t vocabulary = bench.sizes.vocabulary;
  DeviceClock clock(bench.functions, ops.stream());
  std::vector<float> numbers(static_cast<size_t>(n * vocabulary));
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (float& f : numbers) f = normal(random);
  const float* logits = clock.of(std::span<const float>(numbers));
  auto* ids = static_cast<int32_t*>(clock.allocate(static_cast<uint64_t>(n) * sizeof(int32_t)));
  for (const Way& way : kWays) {
    GpuRow row = memory_bound_row(std::string("drawing ") + way.name + " from " + std::to_string(n) +
                                      (n == 1 ? " row of " : " rows of ") + std::to_string(vocabulary) + " logits",
                                  memory_rate);
    const std::vector<MoestroCudaSampling> how(static_cast<size_t>(n), way.how);
    const double took = median_seconds(
        bench, clock, ops, [&] { ops.sample(logits, n, vocabulary, how, ids); }, row.failed);
    if (took > 0) row.value = static_cast<double>(numbers.size() * sizeof(float)) / took / 1e9;
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<GpuRow> drawing_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  for (const int64_t n : bench.sizes.drawn_rows)
    with_ops(bench, "drawing", rows, [&](kernels::cuda::CudaOps& ops) { measure(bench, ops, n, memory_rate, rows); });
  return rows;
}

}  // namespace moestro::bench
