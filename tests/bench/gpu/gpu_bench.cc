#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {

GpuSizes GpuSizes::tiny() {
  GpuSizes s;
  s.hidden = 64, s.ffn = 96, s.experts = 4;
  s.few_dtypes = {DType::kBF16, DType::kInt8, DType::kInt4, DType::kMXFP4};
  s.many_dtypes = {DType::kBF16, DType::kMXFP4};
  s.many_tokens = 40;
  s.few_tokens = {1, 20};
  s.dense_tokens = {1, 40};
  s.heads = 4, s.kv_heads = 2, s.head_dim = 16;
  s.decodes = {{3, 160, DType::kBF16}, {3, 160, DType::kInt8}};
  s.prompt = 48;
  s.kv_rank = 32, s.nope_dim = 8, s.rope_dim = 8, s.value_dim = 8;
  s.latent_decodes = {{16, 3, 100, false}, {16, 1, 100, true}};
  s.vocabulary = 500;
  s.drawn_rows = {2};
  s.delta = {.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 24, .conv = 4};
  s.delta_hidden = 64, s.delta_prompt = 130;
  s.delta_sequences = {3};
  s.copies = {64 << 10, 0};
  s.chunk_bytes = 12 << 10;
  s.stream_bytes = 1 << 20;
  s.repeats = 2;
  s.seconds_least = 0;
  return s;
}

double median_seconds(const GpuBench& bench, DeviceClock& clock, kernels::cuda::CudaOps& ops,
                      const std::function<void()>& work, std::string& failed) {
  const auto status = [&] { return clock.status().is_ok() ? ops.status() : clock.status(); };
  const int times = status().is_ok() ? clock.times_for(work, bench.sizes.seconds_least) : 1;
  std::vector<double> runs;
  for (int i = 0; i < bench.sizes.repeats && status().is_ok(); ++i) runs.push_back(clock.seconds(work, times));
  if (const Status ended = clock.status().is_ok() ? ops.wait() : clock.status(); !ended.is_ok()) {
    failed = ended.message();
    return 0;
  }
  return median(runs);
}

void with_ops(const GpuBench& bench, const std::string& what, std::vector<GpuRow>& rows,
              const std::function<void(kernels::cuda::CudaOps&)>& measure, bool deterministic) {
  auto ops = kernels::cuda::CudaOps::create(bench.functions, {.deterministic = deterministic});
  if (ops.is_ok()) return measure(**ops);
  rows.push_back({.what = what,
                  .value = 0,
                  .unit = "",
                  .ceiling = 0,
                  .ceiling_is = "",
                  .aim = 0,
                  .failed = ops.status().message()});
}

std::vector<GpuRow> run_gpu_bench(const GpuBench& bench, const std::function<void(const GpuRow&)>& done) {
  std::vector<GpuRow> rows;
  const auto add = [&](std::vector<GpuRow> more) {
    for (GpuRow& row : more) {
      if (done) done(row);
      rows.push_back(std::move(row));
    }
  };
  auto memory = memory_row(bench);
  const double memory_rate = memory.is_ok() ? memory->value * 1e9 : 0;
  if (memory.is_ok()) add({*memory});
  else
    add({GpuRow{.what = "device memory",
                .value = 0,
                .unit = "GB/s",
                .ceiling = 0,
                .ceiling_is = "",
                .aim = 0,
                .failed = memory.status().message()}});
  add(copy_rows(bench));
  auto experts = expert_rows(bench, memory_rate);
  const double product_rate = experts.front().ceiling * 1e12;
  add(std::move(experts));
  add(dense_rows(bench, product_rate));
  add(attention_rows(bench, memory_rate, product_rate));
  add(latent_rows(bench, memory_rate));
  add(drawing_rows(bench, memory_rate));
  add(delta_rows(bench, memory_rate));
  return rows;
}

}  // namespace moestro::bench
