#include <algorithm>
#include <cmath>

#include "common/float16.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
/// Index of component 0 of K (or V) at `position`, in values from the cache's start.
int64_t kv_index(const AttentionShape& shape, const AttentionSequence& s, bool value, int64_t head,
                 int64_t position) {
  const int64_t block = s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
  return (((block * 2 + (value ? 1 : 0)) * shape.kv_heads + head) * kKvBlockTokens +
          position % kKvBlockTokens) *
         shape.head_dim;
}

void store(const KvView& cache, int64_t i, float f) {
  if (cache.dtype == DType::kF32)
    static_cast<float*>(cache.data)[i] = f;
  else
    static_cast<uint16_t*>(cache.data)[i] = f32_to_bf16(f);
}

/// One query of one head.
void attend(const AttentionShape& shape, const AttentionSequence& s, int64_t head, int64_t position,
            const float* q, const KvView& cache, float* out) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : 0;
  std::vector<double> weights;
  for (int64_t p = first; p <= position; ++p) {
    double dot = 0.0;
    const int64_t key = kv_index(shape, s, false, kv_head, p);
    for (int64_t d = 0; d < shape.head_dim; ++d) dot += q[d] * value_at(cache.data, cache.dtype, key + d);
    weights.push_back(dot * shape.scale);
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0.0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    double value = 0.0;
    for (int64_t p = first; p <= position; ++p)
      value += weights[static_cast<size_t>(p - first)] *
               value_at(cache.data, cache.dtype, kv_index(shape, s, true, kv_head, p) + d);
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
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          store(cache, kv_index(shape, s, false, h, s.first_position + i) + d, k[from + d]);
          store(cache, kv_index(shape, s, true, h, s.first_position + i) + d, v[from + d]);
        }
      }
    }
  }
}

void ReferenceOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                             const float* q, const KvView& cache, float* out) {
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        const int64_t at = ((s.first_token + i) * shape.heads + h) * shape.head_dim;
        attend(shape, s, h, s.first_position + i, q + at, cache, out + at);
      }
    }
  }
}

}  // namespace moestro::kernels::reference
