#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {

GpuSizes GpuSizes::tiny() {
  GpuSizes s;
  s.hidden = 64, s.ffn = 96, s.experts = 4;
  s.many_tokens = 40;
  s.few_tokens = {1, 20};
  s.sequences = 3, s.context = 160, s.heads = 4, s.kv_heads = 2, s.head_dim = 16;
  s.copies = {64 << 10, 0};
  s.chunk_bytes = 12 << 10;
  s.stream_bytes = 1 << 20;
  s.repeats = 2;
  s.seconds_least = 0;
  return s;
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
  add(expert_rows(bench, memory_rate));
  add(attention_rows(bench, memory_rate));
  return rows;
}

}  // namespace moestro::bench
