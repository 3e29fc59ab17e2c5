// The gated delta rule: sequences that decode, whose time is reading and writing their states, and a prompt, against
// the time in which its layer's products could read their weights.

#include <cstdlib>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

using kernels::AttentionSequence;
using kernels::DeltaShape;

/// `tokens` more of each of `sequences` sequences.
class DeltaStep {
 public:
  DeltaStep(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t sequences, int64_t tokens)
      : clock(bench.functions, ops.stream()), shape_(bench.sizes.delta), ops_(ops) {
    const int64_t rows = sequences * tokens;
    in_ = {.q = numbers(rows * shape_.keys()),
           .k = numbers(rows * shape_.keys()),
           .v = numbers(rows * shape_.values()),
           .a = numbers(rows * shape_.value_heads),
           .b = numbers(rows * shape_.value_heads),
           .conv = numbers(shape_.channels() * shape_.conv),
           .a_log = numbers(shape_.value_heads),
           .dt_bias = numbers(shape_.value_heads)};
    const auto state_bytes = static_cast<uint64_t>(sequences * kernels::delta_state_floats(shape_)) * sizeof(float);
    states_ = static_cast<float*>(clock.allocate(state_bytes));
    if (states_ != nullptr) clock.note("fill", bench.functions.fill(states_, 0, state_bytes, clock.stream()));
    out_ = static_cast<float*>(clock.allocate(static_cast<uint64_t>(rows * shape_.values()) * sizeof(float)));
    constexpr int64_t kBefore = 100;
    for (int64_t i = 0; i < sequences; ++i) writes_.push_back({kBefore + tokens, static_cast<uint32_t>(i)});
    for (int64_t i = 0; i < sequences; ++i)
      step_.push_back({.first_token = i * tokens,
                       .tokens = tokens,
                       .first_position = kBefore,
                       .state = static_cast<uint32_t>(i),
                       .states = std::span(writes_).subspan(static_cast<size_t>(i), 1)});
  }
  void queue() { ops_.gated_delta(shape_, step_, in_, states_, out_); }
  Status status() const { return clock.status().is_ok() ? ops_.status() : clock.status(); }

  DeviceClock clock;

 private:
  float* numbers(int64_t count) {
    const std::vector<float> values(static_cast<size_t>(count), 0.01f);
    return const_cast<float*>(clock.of(std::span(values)));
  }

  DeltaShape shape_;
  kernels::cuda::CudaOps& ops_;
  kernels::DeltaInput in_ = {};
  float *states_ = nullptr, *out_ = nullptr;
  std::vector<StateWrite> writes_;
  std::vector<AttentionSequence> step_;
};

GpuRow delta_decode_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, int64_t sequences, double memory_rate) {
  GpuRow row = memory_bound_row(
      "gated delta rule, " + std::to_string(sequences) + (sequences == 1 ? " sequence decodes" : " sequences decode"),
      memory_rate);
  // Each state is read and written.
  const auto bytes = 2 * static_cast<double>(sequences * kernels::delta_state_floats(bench.sizes.delta)) *
                     static_cast<double>(sizeof(float));
  DeltaStep step(bench, ops, sequences, 1);
  const double took = median_seconds(bench, step.clock, ops, [&] { step.queue(); }, row.failed);
  if (took > 0) row.value = bytes / took / 1e9;
  return row;
}

/// A prompt in chunks, and by the recurrence, as in deterministic mode: in turns.
std::vector<GpuRow> delta_prompt_rows(const GpuBench& bench, kernels::cuda::CudaOps& fast,
                                      kernels::cuda::CudaOps& deterministic, double memory_rate) {
  const GpuSizes& s = bench.sizes;
  const std::string prompt = "gated delta rule, a prompt of " + std::to_string(s.delta_prompt) + " tokens";
  std::vector<GpuRow> rows;
  for (const char* way : {"", " by the recurrence"})
    rows.push_back(memory_bound_row(prompt + way + ", as bytes of the layer's projections in bf16", memory_rate));
  DeltaStep steps[] = {{bench, fast, 1, s.delta_prompt}, {bench, deterministic, 1, s.delta_prompt}};
  const auto fine = [&] { return steps[0].status().is_ok() && steps[1].status().is_ok(); };
  std::vector<double> runs[2];
  int times[] = {1, 1};
  for (int i = 0; i < 2 && fine(); ++i)
    times[i] = steps[i].clock.times_for([&] { steps[i].queue(); }, s.seconds_least);
  for (int run = 0; run < s.repeats; ++run)
    for (int i = 0; i < 2 && fine(); ++i)
      runs[i].push_back(steps[i].clock.seconds([&] { steps[i].queue(); }, times[i]));
  const double bytes =
      2 * static_cast<double>(s.delta_hidden) * static_cast<double>(2 * s.delta.keys() + 3 * s.delta.values());
  for (size_t i = 0; i < 2; ++i) {
    if (!steps[i].status().is_ok()) rows[i].failed = steps[i].status().message();
    else if (!fine()) rows[i].failed = "measured in turns with one that failed";
    else rows[i].value = bytes / median(runs[i]) / 1e9;
  }
  return rows;
}

}  // namespace

std::vector<GpuRow> delta_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  const auto with = [&](auto row) {
    with_ops(bench, "gated delta rule", rows, [&](kernels::cuda::CudaOps& ops) { rows.push_back(row(ops)); });
  };
  for (const int64_t sequences : bench.sizes.delta_sequences)
    with([&](kernels::cuda::CudaOps& ops) { return delta_decode_row(bench, ops, sequences, memory_rate); });
  ::setenv("MOESTRO_CUDA_DELTA_CHUNKS", "1", 1);  // for those that are made from here on
  with_ops(bench, "gated delta rule", rows, [&](kernels::cuda::CudaOps& fast) {
    with_ops(bench, "gated delta rule", rows, [&](kernels::cuda::CudaOps& deterministic) {
      for (GpuRow& row : delta_prompt_rows(bench, fast, deterministic, memory_rate)) rows.push_back(std::move(row));
    }, true);
  });
  return rows;
}

}  // namespace moestro::bench
