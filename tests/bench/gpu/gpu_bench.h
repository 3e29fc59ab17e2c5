#pragma once
// Measures copies and kernels of a CUDA device, each figure with its ceiling, in turns in the same run. It uses only
// the plugin's table (kernels/plugin/plugin_abi.h), and calls kernels as the engine does, through CudaOps.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/limits/device_limits.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::bench {

using kernels::limits::DeviceClock;
using kernels::limits::median;
using kernels::limits::smallest;

/// The shapes and sizes that are measured; by default Mixtral's.
struct GpuSizes {
  int64_t hidden = 4096, ffn = 14336, experts = 8, top_k = 2;
  int64_t many_tokens = 4096;
  std::vector<int64_t> few_tokens = {1, 2, 4, 8, 16, 32};
  std::vector<DType> many_dtypes = {DType::kBF16, DType::kMXFP4, DType::kQ4K},
                     few_dtypes = {DType::kBF16, DType::kInt8, DType::kInt4, DType::kMXFP4, DType::kQ4K};
  std::vector<int64_t> dense_tokens = {1, 32, 128, 512, 4096};  ///< of a [hidden, hidden] matrix
  int64_t heads = 32, kv_heads = 8, head_dim = 128;
  struct Decode {
    int64_t sequences, context;
    DType cache;
  };
  std::vector<Decode> decodes = {{32, 2048, DType::kBF16}, {32, 2048, DType::kInt8}, {32, 2048, DType::kF32},
                                 {8, 2048, DType::kBF16},  {1, 2048, DType::kBF16},  {1, 32768, DType::kBF16}};
  int64_t prompt = 4096;
  /// Latent attention: DeepSeek-V3's, and with as many heads as DeepSeek-V2-Lite has.
  int64_t kv_rank = 512, nope_dim = 128, rope_dim = 64, value_dim = 128;
  struct LatentDecode {
    int64_t heads, sequences, context;
    bool deterministic;  ///< in f32, as a baseline
  };
  std::vector<LatentDecode> latent_decodes = {
      {128, 32, 4096, false}, {128, 1, 4096, false}, {128, 1, 32768, false}, {16, 32, 4096, false},
      {16, 1, 32768, false},  {128, 32, 4096, true}, {16, 32, 4096, true}};
  int64_t vocabulary = 128256;
  std::vector<int64_t> drawn_rows = {1, 32};
  /// A layer of Qwen3-Next-80B.
  kernels::DeltaShape delta = {.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv = 4};
  int64_t delta_hidden = 2048, delta_prompt = 512;
  std::vector<int64_t> delta_sequences = {1, 8, 64};
  std::vector<uint64_t> copies = {1 << 20, 4 << 20, 16 << 20, 64 << 20, 0};  ///< bytes; 0: an expert of bf16
  uint64_t chunk_bytes = 0;  ///< of a copy, two of which are in flight; 0: as experts are carried (CudaSlots::chunk_of)
  uint64_t stream_bytes = uint64_t{2} << 30;  ///< size for measuring device memory
  int repeats = 15;
  double seconds_least = 5e-3;  ///< short kernels are launched repeatedly until they take this long together

  /// Small enough for an emulator: for tests that the program works.
  static GpuSizes tiny();
};

/// One figure. A ceiling of 0: it could not be measured.
struct GpuRow {
  std::string what;
  double value = 0;
  std::string unit;
  double ceiling = 0;
  std::string ceiling_is;  ///< what the ceiling was measured with
  double aim = 0;          ///< lower bound of value / ceiling; 0: no aim
  std::string failed;      ///< not empty: why there is no figure

  double ratio() const { return ceiling > 0 ? value / ceiling : 0; }
};

/// What reads device memory; `memory_rate` in bytes/s.
inline GpuRow memory_bound_row(std::string what, double memory_rate, double aim = 0) {
  return {.what = std::move(what), .value = 0, .unit = "GB/s", .ceiling = memory_rate / 1e9,
          .ceiling_is = "device memory", .aim = aim, .failed = ""};
}

/// Multiplies [n, cols] by [rows, cols], both bf16, to [n, rows] of bf16, all on the device; queued on the stream.
using DenseProduct = std::function<Status(const void* x, const void* weight, void* y, int64_t n, int64_t rows,
                                          int64_t cols, MoestroCudaStream stream)>;

struct GpuBench {
  const MoestroCudaFunctions& functions;  ///< of the device that this thread has chosen
  GpuSizes sizes;
  DenseProduct dense;      ///< empty: the plugin's own product is the baseline
  std::string dense_name;  ///< "cuBLAS (libcublas.so.13)"
};

/// Runs everything, in the order of docs/perf/gpu.md; `done` gets each row when it is complete.
std::vector<GpuRow> run_gpu_bench(const GpuBench& bench, const std::function<void(const GpuRow&)>& done);

/// The median seconds of `work`, which is queued on the clock's stream by `ops`; 0 after an error, which `failed` gets.
double median_seconds(const GpuBench& bench, DeviceClock& clock, kernels::cuda::CudaOps& ops,
                      const std::function<void()>& work, std::string& failed);
/// Calls `measure` with operations of its own, because an error stays with those that met it. If there are
/// none, `rows` gets a row of this name that says why.
void with_ops(const GpuBench& bench, const std::string& what, std::vector<GpuRow>& rows,
              const std::function<void(kernels::cuda::CudaOps&)>& measure, bool deterministic = false);

/// The parts. If something cannot be measured, its row says why. Rates in bytes/s, and multiply-adds twice a second.
std::vector<GpuRow> copy_rows(const GpuBench& bench);
std::vector<GpuRow> expert_rows(const GpuBench& bench, double memory_rate);
std::vector<GpuRow> dense_rows(const GpuBench& bench, double product_rate);
std::vector<GpuRow> attention_rows(const GpuBench& bench, double memory_rate, double product_rate);
std::vector<GpuRow> latent_rows(const GpuBench& bench, double memory_rate);
std::vector<GpuRow> drawing_rows(const GpuBench& bench, double memory_rate);
std::vector<GpuRow> delta_rows(const GpuBench& bench, double memory_rate);
/// The rate of device memory in bytes/s: the best of copies within it, which read and write, and of fills.
Result<GpuRow> memory_row(const GpuBench& bench);

}  // namespace moestro::bench
