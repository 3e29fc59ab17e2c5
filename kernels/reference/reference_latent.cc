// Latent attention from every head's keys and values, as the formula has it.

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/check.h"
#include "kernels/reference/reference_kv.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {
namespace {

/// The latent of a position in the cache, or its rotated key.
KvRow row_of(const LatentShape& shape, const KvView& cache, const AttentionSequence& s, int64_t position, bool key) {
  const int64_t slot = position % kKvBlockTokens;
  char* block = static_cast<char*>(cache.data) +
                latent_block_bytes(shape, cache.dtype) * s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
  const int64_t dim = key ? shape.rope_dim : shape.kv_rank;
  const int64_t number = key ? kKvBlockTokens * shape.kv_rank + slot * dim : slot * dim;
  auto* scales = reinterpret_cast<float*>(block + latent_scales_offset(shape, cache.dtype));
  return {block + number * dtype_bytes(cache.dtype), scales + (key ? kKvBlockTokens : 0) + slot, dim, cache.dtype};
}

/// The components of x that are rotated, in the order in which they are kept.
std::vector<double> rotated(const LatentShape& shape, const float* x, const float* cos, const float* sin) {
  const int64_t half = shape.rope_dim / 2;
  std::vector<double> y(static_cast<size_t>(shape.rope_dim));
  for (int64_t j = 0; j < half; ++j) {
    const double a = shape.interleaved ? x[2 * j] : x[j], b = shape.interleaved ? x[2 * j + 1] : x[j + half];
    y[static_cast<size_t>(j)] = a * cos[j] - b * sin[j];
    y[static_cast<size_t>(j + half)] = b * cos[j] + a * sin[j];
  }
  return y;
}

/// A head's keys without rotation and values, [positions][nope_dim + value_dim]: its rows of kv_b times the latents.
std::vector<double> expanded(const LatentShape& shape, const AttentionSequence& s, int64_t head, int64_t positions,
                             const std::vector<double>& kv_b, const KvView& cache) {
  const int64_t rows = shape.expanded_dim();
  std::vector<double> out(static_cast<size_t>(positions * rows));
  std::vector<Eight> latents(static_cast<size_t>(shape.kv_rank));
  for (int64_t first = 0; first < positions; first += 8) {
    const int64_t n = std::min<int64_t>(8, positions - first);
    for (int64_t i = 0; i < n; ++i) {
      const KvRow cached = row_of(shape, cache, s, first + i, false);
      for (size_t r = 0; r < latents.size(); ++r)
        latents[r][static_cast<size_t>(i)] = cached.at(static_cast<int64_t>(r));
    }
    for (int64_t row = 0; row < rows; ++row) {
      const Eight sums = add_products({}, latents, kv_b.data() + (head * rows + row) * shape.kv_rank);
      for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>((first + i) * rows + row)] = sums[static_cast<size_t>(i)];
    }
  }
  return out;
}

/// One query of one head, which sees positions [0, position].
void attend(const LatentShape& shape, const AttentionSequence& s, int64_t position, const float* q,
            const std::vector<double>& q_rope, const std::vector<double>& head, const KvView& cache, float* out) {
  std::vector<double> weights;
  for (int64_t p = 0; p <= position; ++p) {
    const KvRow key = row_of(shape, cache, s, p, true);
    double dot = 0.0;
    for (int64_t d = 0; d < shape.nope_dim; ++d) dot += q[d] * head[static_cast<size_t>(p * shape.expanded_dim() + d)];
    for (int64_t d = 0; d < shape.rope_dim; ++d) dot += q_rope[static_cast<size_t>(d)] * key.at(d);
    weights.push_back(dot * shape.scale);
  }
  const double sum = to_weights(weights);
  for (int64_t d = 0; d < shape.value_dim; ++d) {
    double value = 0.0;
    for (int64_t p = 0; p <= position; ++p)
      value += weights[static_cast<size_t>(p)] *
               head[static_cast<size_t>(p * shape.expanded_dim() + shape.nope_dim + d)];
    out[d] = static_cast<float>(value / sum);
  }
}

}  // namespace

void ReferenceOps::latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences,
                                const float* kv, const float* norm, float eps, const float* cos, const float* sin,
                                const KvView& cache) {
  const int64_t half = shape.rope_dim / 2;
  std::vector<float> latent(static_cast<size_t>(shape.kv_rank));
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t row = s.first_token + i, position = s.first_position + i;
      const float* x = kv + row * (shape.kv_rank + shape.rope_dim);
      rms_norm(x, 1, shape.kv_rank, norm, eps, latent.data());
      row_of(shape, cache, s, position, false).store(latent.data());
      const auto key = rotated(shape, x + shape.kv_rank, cos + row * half, sin + row * half);
      const std::vector<float> rounded(key.begin(), key.end());
      row_of(shape, cache, s, position, true).store(rounded.data());
    }
  }
}

void ReferenceOps::latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences,
                                    const float* q, const float* cos, const float* sin, const Weight& kv_b,
                                    const KvView& cache, float* out) {
  const int64_t half = shape.rope_dim / 2;
  const std::vector<double> expanding = numbers_of(kv_b);
  for (const AttentionSequence& s : sequences) {
    for (int64_t h = 0; h < shape.heads && s.tokens > 0; ++h) {
      const std::vector<double> head = expanded(shape, s, h, s.first_position + s.tokens, expanding, cache);
      for (int64_t i = 0; i < s.tokens; ++i) {
        const int64_t row = s.first_token + i;
        const float* query = q + (row * shape.heads + h) * shape.query_dim();
        const auto q_rope = rotated(shape, query + shape.nope_dim, cos + row * half, sin + row * half);
        attend(shape, s, s.first_position + i, query, q_rope, head, cache,
               out + (row * shape.heads + h) * shape.value_dim);
      }
    }
  }
}

}  // namespace moestro::kernels::reference
