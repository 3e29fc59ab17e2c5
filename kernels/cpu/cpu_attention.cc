#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

namespace {
/// Scores that a task of several queries keeps at once: half a typical L2.
constexpr int64_t kScoreFloats = 128 * 1024;

/// Byte offset of K (or V) of a KV head within a block.
int64_t head_offset(const AttentionShape& shape, DType dtype, bool value, int64_t kv_head) {
  return ((value ? shape.kv_heads : 0) + kv_head) * kKvBlockTokens * shape.head_dim * dtype_bytes(dtype);
}
}  // namespace

void CpuOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                      const float* k, const float* v, const KvView& cache) {
  MOESTRO_CHECK(cache.dtype == DType::kF32 || cache.dtype == DType::kBF16, "a KV cache is f32 or bf16");
  const int64_t block_bytes = kv_block_bytes(shape, cache.dtype);
  const int64_t row_bytes = shape.head_dim * dtype_bytes(cache.dtype);
  const auto store = [&](const float* from, char* to) {
    if (cache.dtype == DType::kF32)
      std::copy_n(from, shape.head_dim, reinterpret_cast<float*>(to));
    else
      kernels_.to_bf16(from, shape.head_dim, reinterpret_cast<uint16_t*>(to));
  };
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t position = s.first_position + i;
      char* block = static_cast<char*>(cache.data) +
                    block_bytes * s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
      block += position % kKvBlockTokens * row_bytes;
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t from = ((s.first_token + i) * shape.kv_heads + h) * shape.head_dim;
        store(k + from, block + head_offset(shape, cache.dtype, false, h));
        store(v + from, block + head_offset(shape, cache.dtype, true, h));
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
    const int64_t length = s.first_position + s.tokens;
    const int64_t fits = std::min(kAttentionRowsMax, kScoreFloats / std::max<int64_t>(1, length)) / heads;
    const int64_t queries = std::max<int64_t>(1, fits);
    if (s.tokens > 0)
      score_floats =
          std::max(score_floats, attention_scratch_floats(std::min(queries, s.tokens) * heads, length - 1));
    for (int64_t q = 0; q < s.tokens; q += queries) {
      for (int64_t h = 0; h < shape.heads; h += group) {
        for (int64_t sub = 0; sub < group; sub += heads) {
          attention_units_.push_back(
              {&s, static_cast<int32_t>(q), static_cast<int32_t>(std::min(queries, s.tokens - q)),
               static_cast<int32_t>(h + sub), static_cast<int32_t>(std::min(heads, group - sub))});
        }
      }
    }
  }
  return score_floats;
}

void CpuOps::attend(const AttentionShape& shape, const AttentionUnit& unit, const float* q,
                    const KvView& cache, float* out, int thread) {
  const AttentionSequence& s = *unit.sequence;
  const int64_t kv_head = unit.first_head / (shape.heads / shape.kv_heads);
  const int64_t at = ((s.first_token + unit.first_query) * shape.heads + unit.first_head) * shape.head_dim;
  AttentionTask task;
  task.q = q + at;
  task.out = out + at;
  task.token_stride = shape.heads * shape.head_dim;
  task.queries = unit.queries;
  task.heads = unit.heads;
  task.head_dim = shape.head_dim;
  task.first_position = s.first_position + unit.first_query;
  task.window = shape.window;
  task.scale = shape.scale;
  const char* data = static_cast<const char*>(cache.data);
  task.keys = data + head_offset(shape, cache.dtype, false, kv_head);
  task.values = data + head_offset(shape, cache.dtype, true, kv_head);
  task.block_bytes = kv_block_bytes(shape, cache.dtype);
  task.blocks = s.blocks.data();
  task.bf16 = cache.dtype == DType::kBF16;
  const int64_t last = task.first_position + unit.queries - 1;
  task.scores = scratch(thread).scores.at_least(attention_scratch_floats(task.queries * task.heads, last));
  task.panel = panel(thread);
  kernels_.attention(task);
}

void CpuOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                       const float* q, const KvView& cache, float* out) {
  MOESTRO_CHECK(cache.dtype == DType::kF32 || cache.dtype == DType::kBF16, "a KV cache is f32 or bf16");
  MOESTRO_CHECK(shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "heads is a multiple of kv_heads");
  const int64_t score_floats = cut_attention(shape, sequences);
  for (ThreadScratch& s : thread_scratch_) s.scores.at_least(score_floats);
  int64_t work = 0;
  for (const AttentionSequence& s : sequences)
    work += s.tokens * (s.first_position + s.tokens) * shape.heads * shape.head_dim;
  const auto units = static_cast<int64_t>(attention_units_.size());
  const auto run = [&](int64_t i, int thread) {
    attend(shape, attention_units_[static_cast<size_t>(i)], q, cache, out, thread);
  };
  if (work < kInlineWork) {
    for (int64_t i = 0; i < units; ++i) run(i, 0);
  } else {
    pool_.run(units, run);
  }
}

}  // namespace moestro::kernels::cpu
