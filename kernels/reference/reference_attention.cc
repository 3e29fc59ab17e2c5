#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/reference/reference_kv.h"

namespace moestro::kernels::reference {

namespace {
/// K or V of one position and KV head in the cache.
KvRow row_of(const AttentionShape& shape, const KvView& cache, const AttentionSequence& s, bool value, int64_t head,
             int64_t position) {
  const int64_t row = ((value ? shape.kv_heads : 0) + head) * kKvBlockTokens + position % kKvBlockTokens;
  char* block = static_cast<char*>(cache.data) +
                kv_block_bytes(shape, cache.dtype) * s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
  return {block + row * shape.head_dim * dtype_bytes(cache.dtype),
          reinterpret_cast<float*>(block + kv_scales_offset(shape, cache.dtype)) + row, shape.head_dim, cache.dtype};
}

int64_t bias_index(const AttentionShape& shape, int64_t head, int64_t distance) {
  const int64_t reach = shape.bias_reach;
  return head * (2 * reach + 1) + std::clamp(distance, -reach, reach) + reach;
}

/// The keys and values of a sequence and KV head as numbers, read when they are first seen: others may be anything.
class SeenRows {
 public:
  SeenRows(const AttentionShape& shape, const AttentionSequence& sequence, int64_t head, const KvView& cache)
      : shape_(shape), sequence_(sequence), head_(head), cache_(cache) {}
  const std::vector<double>& key(int64_t position) { return read(keys_, false, position); }
  const std::vector<double>& value(int64_t position) { return read(values_, true, position); }

 private:
  using Rows = std::map<int64_t, std::vector<double>>;
  const std::vector<double>& read(Rows& rows, bool value, int64_t position) {
    std::vector<double>& row = rows[position];
    if (row.empty()) {
      const KvRow stored = row_of(shape_, cache_, sequence_, value, head_, position);
      for (int64_t d = 0; d < shape_.head_dim; ++d) row.push_back(stored.at(d));
    }
    return row;
  }

  const AttentionShape& shape_;
  const AttentionSequence& sequence_;
  int64_t head_;
  const KvView& cache_;
  Rows keys_, values_;
};

/// One query of one head.
void attend(const AttentionShape& shape, const AttentionSequence& s, int64_t head, int64_t position,
            const float* q, const float* sink_q, SeenRows& rows, float* out) {
  const bool gap = shape.has_gap(position);
  std::vector<int64_t> seen;
  const int64_t end = s.is_causal() ? position + 1 : s.seen_end;
  for (int64_t p = s.seen_first; p < end; ++p)
    if (!gap || p < shape.sinks || p > position - shape.window) seen.push_back(p);
  std::vector<double> weights;
  for (const int64_t p : seen) {
    const float* query = gap && p < shape.sinks ? sink_q : q;
    double dot = 0.0;
    for (const double component : rows.key(p)) dot += *query++ * component;
    if (shape.position_bias) dot += shape.position_bias[bias_index(shape, head, p - position)];
    weights.push_back(dot * shape.scale);
  }
  if (shape.sink_logits) weights.push_back(shape.sink_logits[head]);
  const double sum = to_weights(weights);
  std::vector<double> mixed(static_cast<size_t>(shape.head_dim));
  for (size_t i = 0; i < seen.size(); ++i) {
    const std::vector<double>& value = rows.value(seen[i]);
    for (size_t d = 0; d < mixed.size(); ++d) mixed[d] += weights[i] * value[d];
  }
  for (int64_t d = 0; d < shape.head_dim; ++d) out[d] = static_cast<float>(mixed[static_cast<size_t>(d)] / sum);
}
}  // namespace

void ReferenceOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                            const float* k, const float* v, const KvView& cache) {
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t from = ((s.first_token + i) * shape.kv_heads + h) * shape.head_dim;
        row_of(shape, cache, s, false, h, s.first_position + i).store(k + from);
        row_of(shape, cache, s, true, h, s.first_position + i).store(v + from);
      }
    }
  }
}

void ReferenceOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                             const float* q, const float* sink_q, const KvView& cache, float* out) {
  for (const AttentionSequence& s : sequences) {
    MOESTRO_CHECK(s.is_causal() || shape.window == 0, "queries that see all of a sequence have no window");
    const int64_t group = shape.heads / shape.kv_heads;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      SeenRows rows(shape, s, kv_head, cache);
      for (int64_t i = 0; i < s.tokens; ++i) {
        for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
          const int64_t at = ((s.first_token + i) * shape.heads + h) * shape.head_dim;
          attend(shape, s, h, s.first_position + i, q + at, sink_q == nullptr ? nullptr : sink_q + at, rows, out + at);
        }
      }
    }
  }
}

}  // namespace moestro::kernels::reference
