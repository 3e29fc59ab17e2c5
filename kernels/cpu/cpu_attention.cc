#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/kv_rows.h"

namespace moestro::kernels::cpu {

namespace {
/// Scores that a task of several queries keeps at once: half a typical L2.
constexpr int64_t kScoreFloats = 128 * 1024;

/// K or V of a KV head in the cache.
KvPart kv_part(const AttentionShape& shape, const KvView& cache, bool value, int64_t kv_head) {
  const int64_t row = ((value ? shape.kv_heads : 0) + kv_head) * kKvBlockTokens;
  const char* data = static_cast<const char*>(cache.data);
  return {.values = data + row * shape.head_dim * dtype_bytes(cache.dtype),
          .scales = data + kv_scales_offset(shape, cache.dtype) + row * static_cast<int64_t>(sizeof(float)),
          .block_bytes = kv_block_bytes(shape, cache.dtype)};
}
/// The positions that some queries of a sequence see; of causal ones, those of their windows.
struct Reach {
  int64_t first, last;
  int64_t positions() const { return last - first + 1; }
};
Reach reach_of(const AttentionShape& shape, const AttentionSequence& s, int64_t query, int64_t count) {
  if (!s.is_causal()) return {s.seen_first, s.seen_end - 1};
  const int64_t position = s.first_position + query;
  return {shape.window_begin(position), position + count - 1};
}
}  // namespace

void CpuOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                      const float* k, const float* v, const KvView& cache) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    const KvPart keys = kv_part(shape, cache, false, h), values = kv_part(shape, cache, true, h);
    for (const AttentionSequence& s : sequences) {
      for (int64_t i = 0; i < s.tokens; ++i) {
        const int64_t position = s.first_position + i, slot = position % kKvBlockTokens;
        const uint32_t block = s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
        const int64_t from = ((s.first_token + i) * shape.kv_heads + h) * shape.head_dim;
        store_row(kernels_, cache.dtype, keys, block, slot, k + from, shape.head_dim);
        store_row(kernels_, cache.dtype, values, block, slot, v + from, shape.head_dim);
      }
    }
  }
}

/// Units are at most kAttentionRowsMax (query, head) pairs of one KV head.
int64_t CpuOps::cut_attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences) {
  attention_units_.clear();
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t heads = std::min(group, kAttentionRowsMax);
  int64_t score_floats = 0;
  for (const AttentionSequence& s : sequences) {
    if (s.tokens == 0) continue;
    // Of one row at most; that a unit's rows reach over less only makes units smaller than they could be.
    const Reach all = reach_of(shape, s, 0, s.tokens);
    const int64_t length = attention_row_floats(all.first, all.last, shape.sinks);
    const int64_t fits = std::min(kAttentionRowsMax, kScoreFloats / std::max<int64_t>(1, length)) / heads;
    const int64_t queries = std::max<int64_t>(1, fits);
    for (int64_t q = 0; q < s.tokens; q += queries) {
      const int64_t count = std::min(queries, s.tokens - q);
      const Reach reach = reach_of(shape, s, q, count);
      score_floats =
          std::max(score_floats, count * heads * attention_row_floats(reach.first, reach.last, shape.sinks));
      for (int64_t h = 0; h < shape.heads; h += group) {
        for (int64_t sub = 0; sub < group; sub += heads) {
          attention_units_.push_back({&s, static_cast<int32_t>(q), static_cast<int32_t>(count),
                                      static_cast<int32_t>(h + sub),
                                      static_cast<int32_t>(std::min(heads, group - sub))});
        }
      }
    }
  }
  return score_floats;
}

void CpuOps::attend(const AttentionShape& shape, const AttentionUnit& unit, const float* q,
                    const float* sink_q, const KvView& cache, float* out, int thread) {
  const AttentionSequence& s = *unit.sequence;
  const int64_t kv_head = unit.first_head / (shape.heads / shape.kv_heads);
  const int64_t at = ((s.first_token + unit.first_query) * shape.heads + unit.first_head) * shape.head_dim;
  AttentionTask task;
  task.q = q + at;
  task.sink_q = sink_q == nullptr ? nullptr : sink_q + at;
  task.out = out + at;
  task.token_stride = shape.heads * shape.head_dim;
  task.queries = unit.queries;
  task.heads = unit.heads;
  task.head_dim = shape.head_dim;
  task.first_position = s.first_position + unit.first_query;
  task.window = shape.window;
  task.sinks = shape.sinks;
  task.scale = shape.scale;
  task.sink_logits = shape.sink_logits == nullptr ? nullptr : shape.sink_logits + unit.first_head;
  task.keys = kv_part(shape, cache, false, kv_head);
  task.values = kv_part(shape, cache, true, kv_head);
  task.blocks = s.blocks.data();
  if (shape.position_bias != nullptr)
    task.position_bias = shape.position_bias + unit.first_head * (2 * shape.bias_reach + 1);
  task.bias_reach = shape.bias_reach;
  task.seen_first = s.seen_first, task.seen_end = s.seen_end;
  const Reach reach = reach_of(shape, s, unit.first_query, unit.queries);
  task.scores = scratch(thread).scores.at_least(
      task.queries * task.heads *
      attention_row_floats(reach.first, reach.last, shape.sinks));
  task.panel = panel(thread);
  kernels_.attention[static_cast<size_t>(cache.dtype)](task);
}

void CpuOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                       const float* q, const float* sink_q, const KvView& cache, float* out) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  for (const AttentionSequence& s : sequences)
    MOESTRO_CHECK(sink_q != nullptr || shape.sinks == 0 || s.tokens == 0 ||
                      !shape.has_gap(s.first_position + s.tokens - 1),
                  "sinks have queries of their own");
  MOESTRO_CHECK(shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "heads is a multiple of kv_heads");
  MOESTRO_CHECK(shape.window == 0 || std::ranges::all_of(sequences, &AttentionSequence::is_causal),
                "queries that see all of a sequence have no window");
  const int64_t score_floats = cut_attention(shape, sequences);
  for (ThreadScratch& s : thread_scratch_) s.scores.at_least(score_floats);
  int64_t work = 0;
  for (const AttentionSequence& s : sequences)
    if (s.tokens > 0)
      work += s.tokens * (reach_of(shape, s, 0, s.tokens).positions() + shape.sinks) * shape.heads * shape.head_dim;
  const auto units = static_cast<int64_t>(attention_units_.size());
  const auto run = [&](int64_t i, int thread) {
    attend(shape, attention_units_[static_cast<size_t>(i)], q, sink_q, cache, out, thread);
  };
  if (work < kInlineWork) {
    for (int64_t i = 0; i < units; ++i) run(i, 0);
  } else {
    pool_.run(units, run);
  }
}

}  // namespace moestro::kernels::cpu
