// The experts of a layer: on many tokens, against arithmetic; on few, against memory.

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

/// A layer in device memory, whose weights are all of one expert's worth of numbers or more; its routes, and room for
/// what comes out.
class Layer {
 public:
  Layer(const GpuBench& bench, kernels::cuda::CudaOps& ops, DType dtype, int64_t tokens_max)
      : sizes_(bench.sizes),
        ops_(ops),
        layout_(sizes_.hidden, sizes_.ffn, dtype),
        clock_(bench.functions, ops.stream()) {
    const auto bytes = static_cast<uint64_t>(layout_.bytes());
    std::vector<uint64_t> slots;
    for (int64_t e = 0; e < sizes_.experts && clock_.status().is_ok(); ++e) {
      void* blob = dtype == DType::kBF16 ? clock_.random_bf16(bytes, 0.03f) : clock_.allocate(bytes);
      // 0x3c3c is a small bf16 number, and one as f16, so that scales are sound.
      if (blob != nullptr && dtype != DType::kBF16)
        clock_.note("fill", bench.functions.fill(blob, 0x3c, bytes, clock_.stream()));
      slots.push_back(reinterpret_cast<uint64_t>(blob));
    }
    slots_ = clock_.of(std::span<const uint64_t>(slots));
    std::vector<float> x(static_cast<size_t>(tokens_max * sizes_.hidden));
    std::mt19937 random(11);
    for (float& number : x) number = static_cast<float>(random() >> 8) / 8388608.0f - 1.0f;
    x_ = clock_.of(std::span<const float>(x));
    out_ = static_cast<float*>(
        clock_.allocate(static_cast<uint64_t>(tokens_max * sizes_.top_k * sizes_.hidden) * sizeof(float)));
  }

  DeviceClock& clock() { return clock_; }
  Status status() { return clock_.status().is_ok() ? ops_.wait() : clock_.status(); }

  /// Each token goes to top_k experts drawn at random. Returns how many experts have tokens.
  int64_t route(int64_t tokens) {
    std::mt19937 random(static_cast<uint32_t>(tokens));
    std::vector<int32_t> all(static_cast<size_t>(sizes_.experts)), ids;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + sizes_.top_k);
    }
    ids_ = clock_.of(std::span<const int32_t>(ids));
    tokens_ = tokens;
    return static_cast<int64_t>(std::set<int32_t>(ids.begin(), ids.end()).size());
  }
  void run() { ops_.experts({layout_, slots_, ids_, nullptr, tokens_, sizes_.experts, sizes_.top_k, x_, out_}); }

  double blob_bytes() const { return static_cast<double>(layout_.bytes()); }

 private:
  const GpuSizes& sizes_;
  kernels::cuda::CudaOps& ops_;
  ExpertLayout layout_;
  DeviceClock clock_;
  const uint64_t* slots_ = nullptr;
  const int32_t* ids_ = nullptr;
  const float* x_ = nullptr;
  float* out_ = nullptr;
  int64_t tokens_ = 0;
};

/// One product of the same number of multiply-adds as the layer's: every routed row with three matrices of [ffn,
/// hidden].
class Dense {
 public:
  explicit Dense(const GpuBench& bench, DeviceClock& clock)
      : bench_(bench),
        clock_(clock),
        n_(bench.sizes.many_tokens * bench.sizes.top_k),
        rows_(3 * bench.sizes.ffn),
        cols_(bench.sizes.hidden) {
    const bool own = !bench.dense;
    weight_ = clock.random_bf16(static_cast<uint64_t>(rows_ * cols_) * 2, 0.03f);
    const auto x_bytes = static_cast<uint64_t>(n_ * cols_) * 2;
    x_ = own ? clock.allocate(2 * x_bytes) : clock.random_bf16(x_bytes, 1.0f);
    if (own && x_ != nullptr) clock.note("fill", bench.functions.fill(x_, 0x3c, 2 * x_bytes, clock.stream()));
    y_ = clock.allocate(static_cast<uint64_t>(n_ * rows_) * (own ? sizeof(float) : 2));
    if (own) rounded_x_ = clock.allocate(static_cast<uint64_t>(kernels::cuda::CudaOps::rounded_bytes(n_, cols_)));
  }
  void run() {
    if (bench_.dense) {
      if (const Status status = bench_.dense(x_, weight_, y_, n_, rows_, cols_, clock_.stream());
          !status.is_ok() && failed_.is_ok())
        failed_ = status;
      return;
    }
    MoestroCudaMatmul a{};
    a.x = static_cast<const float*>(x_);
    a.n = n_, a.rows = rows_, a.cols = cols_;
    a.weight = weight_;
    a.dtype = MOESTRO_CUDA_BF16;
    a.y = static_cast<float*>(y_);
    a.rounded = 1;
    a.rounded_x = static_cast<uint16_t*>(rounded_x_);
    clock_.note("matmul", bench_.functions.ops.matmul(&a, clock_.stream()));
  }
  double flops() const {
    return 2.0 * static_cast<double>(n_) * static_cast<double>(rows_) * static_cast<double>(cols_);
  }
  const Status& failed() const { return failed_; }

 private:
  const GpuBench& bench_;
  DeviceClock& clock_;
  int64_t n_, rows_, cols_;
  void *weight_ = nullptr, *x_ = nullptr, *y_ = nullptr, *rounded_x_ = nullptr;
  Status failed_;
};

GpuRow many_row(const GpuBench& bench, kernels::cuda::CudaOps& ops, DType dtype) {
  const GpuSizes& s = bench.sizes;
  GpuRow row{.what = std::to_string(s.experts) + " experts of " + std::string(dtype_name(dtype)) + " on " +
                     std::to_string(s.many_tokens) + " tokens, " + std::to_string(s.top_k) + " each",
             .value = 0,
             .unit = "TFLOP/s",
             .ceiling = 0,
             .ceiling_is = "one dense product of as many operations, " +
                           (bench.dense ? bench.dense_name : "the plugin's own: there is no cuBLAS"),
             .aim = dtype == DType::kBF16 ? 0.80 : 0,
             .failed = ""};
  Layer layer(bench, ops, dtype, s.many_tokens);
  layer.route(s.many_tokens);
  Dense dense(bench, layer.clock());
  std::vector<double> ours, best;
  for (int i = 0; i <= s.repeats && layer.status().is_ok() && dense.failed().is_ok(); ++i) {
    const double took = layer.clock().seconds([&] { layer.run(); }),
                 took_dense = layer.clock().seconds([&] { dense.run(); });
    if (i > 0) ours.push_back(took), best.push_back(took_dense);
  }
  const Status status = layer.status().is_ok() ? dense.failed() : layer.status();
  row.failed = status.is_ok() ? "" : status.message();
  if (!status.is_ok()) return row;
  row.value = dense.flops() / median(ours) / 1e12;
  row.ceiling = dense.flops() / median(best) / 1e12;
  return row;
}

void few_rows(const GpuBench& bench, kernels::cuda::CudaOps& ops, DType dtype, double memory_rate,
              std::vector<GpuRow>& rows) {
  const GpuSizes& s = bench.sizes;
  Layer layer(bench, ops, dtype, *std::max_element(s.few_tokens.begin(), s.few_tokens.end()));
  for (const int64_t tokens : s.few_tokens) {
    const int64_t active = layer.route(tokens);
    GpuRow row = memory_bound_row(std::to_string(active) + " experts of " + std::string(dtype_name(dtype)) + " on " +
                                      std::to_string(tokens) + (tokens == 1 ? " token" : " tokens"),
                                  memory_rate, dtype == DType::kBF16 ? 0.80 : 0);
    const double took = median_seconds(
        bench, layer.clock(), ops, [&] { layer.run(); }, row.failed);
    if (took > 0) row.value = static_cast<double>(active) * layer.blob_bytes() / took / 1e9;
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<GpuRow> expert_rows(const GpuBench& bench, double memory_rate) {
  std::vector<GpuRow> rows;
  for (const DType dtype : bench.sizes.many_dtypes)
    with_ops(bench, "experts on many tokens", rows,
             [&](kernels::cuda::CudaOps& ops) { rows.push_back(many_row(bench, ops, dtype)); });
  for (const DType dtype : bench.sizes.few_dtypes)
    with_ops(bench, "experts on few tokens", rows,
             [&](kernels::cuda::CudaOps& ops) { few_rows(bench, ops, dtype, memory_rate, rows); });
  return rows;
}

}  // namespace moestro::bench
