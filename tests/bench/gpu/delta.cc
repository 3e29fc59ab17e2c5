// The gated delta rule: sequences that decode, whose time is reading and writing their states, and a prompt, against
// the time in which its layer's products could read their weights.

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

using kernels::AttentionSequence;
using kernels::DeltaShape;

/// `tokens` more of each of `sequences` sequences.
double measure_delta(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t sequences, int64_t tokens,
               std::string& failed) {
  const DeltaShape& shape = bench.sizes.delta;
  DeviceClock clock(bench.functions, ops.stream());
  const int64_t rows = sequences * tokens;
  const auto numbers = [&](int64_t count) {
    const std::vector<float> values(static_cast<size_t>(count), 0.01f);
    return const_cast<float*>(clock.of(std::span(values)));
  };
  const kernels::DeltaInput in{.q = numbers(rows * shape.keys()),
                               .k = numbers(rows * shape.keys()),
                               .v = numbers(rows * shape.values()),
                               .a = numbers(rows * shape.value_heads),
                               .b = numbers(rows * shape.value_heads),
                               .conv = numbers(shape.channels() * shape.conv),
                               .a_log = numbers(shape.value_heads),
                               .dt_bias = numbers(shape.value_heads)};
  const auto state_bytes = static_cast<uint64_t>(sequences * kernels::delta_state_floats(shape)) * sizeof(float);
  auto* states = static_cast<float*>(clock.allocate(state_bytes));
  if (states != nullptr) clock.note("fill", bench.functions.fill(states, 0, state_bytes, clock.stream()));
  auto* out = static_cast<float*>(clock.allocate(static_cast<uint64_t>(rows * shape.values()) * sizeof(float)));
  constexpr int64_t kBefore = 100;
  std::vector<StateWrite> writes;
  for (int64_t i = 0; i < sequences; ++i) writes.push_back({kBefore + tokens, static_cast<uint32_t>(i)});
  std::vector<AttentionSequence> step;
  for (int64_t i = 0; i < sequences; ++i)
    step.push_back({.first_token = i * tokens,
                    .tokens = tokens,
                    .first_position = kBefore,
                    .state = static_cast<uint32_t>(i),
                    .states = std::span(writes).subspan(static_cast<size_t>(i), 1)});
  return median_seconds(bench, clock, ops, [&] { ops.gated_delta(shape, step, in, states, out); }, failed);
}

GpuRow delta_decode_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t sequences, double memory_rate) {
  GpuRow row = memory_bound_row(
      "gated delta rule, " + std::to_string(sequences) + (sequences == 1 ? " sequence decodes" : " sequences decode"),
      memory_rate);
  // Each state is read and written.
  const auto bytes = 2 * static_cast<double>(sequences * kernels::delta_state_floats(bench.sizes.delta)) *
                     static_cast<double>(sizeof(float));
  const double took = measure_delta(bench, ops, sequences, 1, row.failed);
  if (took > 0) row.value = bytes / took / 1e9;
  return row;
}

GpuRow delta_prompt_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, double memory_rate) {
  const GpuSizes& s = bench.sizes;
  GpuRow row = memory_bound_row("gated delta rule, a prompt of " + std::to_string(s.delta_prompt) +
                                    " tokens, as bytes of the layer's projections in bf16",
                                memory_rate);
  const double bytes =
      2 * static_cast<double>(s.delta_hidden) * static_cast<double>(2 * s.delta.keys() + 3 * s.delta.values());
  const double took = measure_delta(bench, ops, 1, s.delta_prompt, row.failed);
  if (took > 0) row.value = bytes / took / 1e9;
  return row;
}

}  // namespace

std::vector<GpuRow> delta_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  const auto with = [&](auto row) {
    with_ops(bench, "gated delta rule", rows, [&](kernels::cuda::CudaOps& ops) { rows.push_back(row(ops)); });
  };
  for (const int64_t sequences : bench.sizes.delta_sequences)
    with([&](kernels::cuda::CudaOps& ops) { return delta_decode_row(bench, ops, sequences, memory_rate); });
  with([&](kernels::cuda::CudaOps& ops) { return delta_prompt_row(bench, ops, memory_rate); });
  return rows;
}

}  // namespace moestro::bench
