#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "common/float16.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
/// K or V of one position and KV head in the cache.
class KvRow {
 public:
  KvRow(const AttentionShape& shape, const KvView& cache, const AttentionSequence& s, bool value,
        int64_t head, int64_t position)
      : dim_(shape.head_dim), dtype_(cache.dtype) {
    const int64_t row = ((value ? shape.kv_heads : 0) + head) * kKvBlockTokens + position % kKvBlockTokens;
    char* block =
        static_cast<char*>(cache.data) +
        kv_block_bytes(shape, cache.dtype) * s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
    values_ = block + row * shape.head_dim * dtype_bytes(cache.dtype);
    scale_ = reinterpret_cast<float*>(block + kv_scales_offset(shape, cache.dtype)) + row;
  }
  double at(int64_t d) const {
    return dtype_ == DType::kInt8 ? static_cast<double>(static_cast<const int8_t*>(values_)[d]) * *scale_
                                  : value_at(values_, dtype_, d);
  }
  void store(const float* x) {
    switch (dtype_) {
      case DType::kF32:
        std::copy_n(x, dim_, static_cast<float*>(values_));
        return;
      case DType::kBF16:
        std::transform(x, x + dim_, static_cast<uint16_t*>(values_), f32_to_bf16);
        return;
      case DType::kF16:
        std::transform(x, x + dim_, static_cast<uint16_t*>(values_), f32_to_f16);
        return;
      case DType::kInt8:
        return store_int8(x);
      case DType::kInt4:
      case DType::kBF16In12:
        break;
    }
    MOESTRO_CHECK(false, "a KV cache is f32, bf16, f16 or int8");
  }

 private:
  void store_int8(const float* x) {
    auto* q = static_cast<int8_t*>(values_);
    float most = 0.0f;
    bool finite = true;
    for (int64_t d = 0; d < dim_; ++d) {
      most = std::max(most, std::fabs(x[d]));
      finite = finite && std::isfinite(x[d]);
    }
    const bool zeros = !finite || most < kKvLeastMagnitude;
    *scale_ = !finite ? std::nanf("") : zeros ? 0.0f : most / 127.0f;
    for (int64_t d = 0; d < dim_; ++d)
      q[d] = zeros ? 0 : static_cast<int8_t>(std::nearbyint(x[d] * (127.0f / most)));
  }

  int64_t dim_;
  DType dtype_;
  void* values_;
  float* scale_;  ///< int8 only
};

/// One query of one head.
void attend(const AttentionShape& shape, const AttentionSequence& s, int64_t head, int64_t position,
            const float* q, const float* sink_q, const KvView& cache, float* out) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const bool gap = shape.has_gap(position);
  std::vector<int64_t> seen;
  for (int64_t p = 0; p <= position; ++p)
    if (!gap || p < shape.sinks || p > position - shape.window) seen.push_back(p);
  std::vector<double> weights;
  for (const int64_t p : seen) {
    const float* query = gap && p < shape.sinks ? sink_q : q;
    const KvRow key(shape, cache, s, false, kv_head, p);
    double dot = 0.0;
    for (int64_t d = 0; d < shape.head_dim; ++d) dot += query[d] * key.at(d);
    weights.push_back(dot * shape.scale);
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0.0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    double value = 0.0;
    for (size_t i = 0; i < seen.size(); ++i)
      value += weights[i] * KvRow(shape, cache, s, true, kv_head, seen[i]).at(d);
    out[d] = static_cast<float>(value / sum);
  }
}
}  // namespace

void ReferenceOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                            const float* k, const float* v, const KvView& cache) {
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t from = ((s.first_token + i) * shape.kv_heads + h) * shape.head_dim;
        KvRow(shape, cache, s, false, h, s.first_position + i).store(k + from);
        KvRow(shape, cache, s, true, h, s.first_position + i).store(v + from);
      }
    }
  }
}

void ReferenceOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                             const float* q, const float* sink_q, const KvView& cache, float* out) {
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        const int64_t at = ((s.first_token + i) * shape.heads + h) * shape.head_dim;
        attend(shape, s, h, s.first_position + i, q + at, sink_q == nullptr ? nullptr : sink_q + at, cache,
               out + at);
      }
    }
  }
}

}  // namespace moestro::kernels::reference
