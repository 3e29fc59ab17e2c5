// CudaOps: what belongs to the KV cache.

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "kernels/cuda/attention_limits.h"
#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(kKvBlockTokens == 16 && kKvLeastMagnitude == 1e-35f, "kernels have these as constants");

int64_t partial_bytes(const AttentionShape& shape, int64_t rows, int64_t parts) {
  const int64_t floats = shape.head_dim + MOESTRO_CUDA_PARTIAL_HEAD;
  return rows * shape.heads * parts * floats * static_cast<int64_t>(sizeof(float));
}

/// Kernels are compiled for 1, half as many and all of MOESTRO_CUDA_ATTENTION_PAIRS: no group is larger than it needs.
int64_t unit_pairs(const AttentionShape& shape) {
  constexpr int64_t kHalf = MOESTRO_CUDA_ATTENTION_PAIRS / 2;
  return shape.heads / shape.kv_heads > kHalf ? 2 * kHalf : kHalf;
}
int64_t prefill_pairs(const AttentionShape& shape) {
  if (shape.head_dim > MOESTRO_CUDA_PREFILL_NARROW) return MOESTRO_CUDA_PREFILL_PAIRS_WIDE;
  return MOESTRO_CUDA_PREFILL_PAIRS;
}

MoestroCudaKv kv_of(const AttentionShape& shape, const KvView& cache) {
  MoestroCudaKv kv{};
  kv.heads = shape.heads;
  kv.kv_heads = shape.kv_heads;
  kv.head_dim = shape.head_dim;
  kv.window = shape.window;
  kv.sinks = shape.sinks;
  kv.scale = shape.scale;
  kv.dtype = static_cast<int32_t>(cache.dtype);
  kv.data = cache.data;
  kv.block_bytes = kv_block_bytes(shape, cache.dtype);
  kv.scales_offset = kv_scales_offset(shape, cache.dtype);
  return kv;
}

}  // namespace

void CudaOps::flatten(std::span<const AttentionSequence> sequences) {
  query_list_.clear();
  block_list_.clear();
  furthest_ = 0;
  for (const AttentionSequence& s : sequences) {
    if (s.tokens == 0) continue;
    const auto first_block = static_cast<int32_t>(block_list_.size());
    const int64_t last = s.first_position + s.tokens - 1;
    block_list_.insert(block_list_.end(), s.blocks.begin(), s.blocks.begin() + last / kKvBlockTokens + 1);
    for (int64_t i = 0; i < s.tokens; ++i)
      query_list_.push_back(
          {static_cast<int32_t>(s.first_token + i), static_cast<int32_t>(s.first_position + i), first_block});
    furthest_ = std::max(furthest_, last);
  }
}

/// Pairs of a sequence lie one after another, heads of a query first: a unit's share their keys.
void CudaOps::cut_units(const AttentionShape& shape, std::span<const AttentionSequence> sequences, bool may_round) {
  unit_list_.clear();
  prefill_list_.clear();
  const int64_t group = shape.heads / shape.kv_heads;
  int64_t first_query = 0;
  for (const AttentionSequence& s : sequences) {
    const int64_t pairs = s.tokens * group;
    const bool rounded = may_round && s.tokens > 1 && pairs >= kTilePairs;
    const int64_t most = rounded ? prefill_pairs(shape) : unit_pairs(shape);
    for (int64_t p = 0; p < pairs; p += most)
      (rounded ? prefill_list_ : unit_list_)
          .push_back({static_cast<int32_t>(first_query), static_cast<int32_t>(p),
                      static_cast<int32_t>(std::min(most, pairs - p))});
    first_query += s.tokens;
  }
}

int64_t CudaOps::launched_parts() const {
  const int64_t parts = furthest_ / MOESTRO_CUDA_ATTENTION_PART + 1,
                rounded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(parts)));
  return std::max(parts, std::min(rounded, parts_max_));
}

int64_t CudaOps::send_sequences(const AttentionShape& shape, std::span<const AttentionSequence> sequences) {
  flatten(sequences);
  cut_units(shape, sequences, false);
  queries_[shape.view].of(std::span<const MoestroCudaQuery>(query_list_));
  blocks_[shape.view].of(std::span<const uint32_t>(block_list_));
  units_[shape.view].of(std::span<const MoestroCudaAttentionUnit>(unit_list_));
  return launched_parts();
}

void CudaOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                       const float* v, const KvView& cache) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  flatten(sequences);
  if (query_list_.empty()) return;
  MoestroCudaKvWrite a{};
  a.kv = kv_of(shape, cache);
  a.queries = queries_[shape.view].of(std::span<const MoestroCudaQuery>(query_list_));
  a.blocks = blocks_[shape.view].of(std::span<const uint32_t>(block_list_));
  a.count = static_cast<int64_t>(query_list_.size());
  a.k = k;
  a.v = v;
  if (fine()) queue_.note("kv_write", ops().kv_write(&a, queue_.stream));
}

void CudaOps::place_heads(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                          const HeadsToPlace& h, const KvView& cache) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  flatten(sequences);
  if (query_list_.empty()) return;
  MoestroCudaPlaceHeads a{};
  a.kv = kv_of(shape, cache);
  a.queries = queries_[shape.view].of(std::span<const MoestroCudaQuery>(query_list_));
  a.blocks = blocks_[shape.view].of(std::span<const uint32_t>(block_list_));
  a.count = static_cast<int64_t>(query_list_.size());
  a.q = h.q, a.k = h.k, a.v = h.v;
  a.rotary_dim = h.rotary_dim;
  a.cos = h.cos, a.sin = h.sin;
  a.q_norm = h.q_norm, a.k_norm = h.k_norm, a.eps = h.eps;
  a.sink_q = h.sink_q, a.sink_cos = h.sink_cos, a.sink_sin = h.sink_sin;
  if (fine()) queue_.note("place_heads", ops().place_heads(&a, queue_.stream));
}

void CudaOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                        const float* sink_q, const KvView& cache, float* out) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  MOESTRO_CHECK(shape.position_bias == nullptr && std::ranges::all_of(sequences, &AttentionSequence::is_causal),
                "attention of decoders (supports_encoders)");
  flatten(sequences);
  if (query_list_.empty()) return;
  cut_units(shape, sequences,
            !options_.deterministic && sink_q == nullptr && shape.head_dim % 8 == 0);
  MoestroCudaAttention a{};
  a.kv = kv_of(shape, cache);
  a.queries = queries_[shape.view].of(std::span<const MoestroCudaQuery>(query_list_));
  a.blocks = blocks_[shape.view].of(std::span<const uint32_t>(block_list_));
  a.parts = launched_parts();
  a.q = q;
  a.sink_q = sink_q;
  a.out = out;
  a.sink_logits = shape.sink_logits;
  MoestroCudaAttention prefill = a;
  prefill.rounded = 1;
  prefill.units = prefill_units_[shape.view].of(std::span<const MoestroCudaAttentionUnit>(prefill_list_));
  prefill.unit_count = static_cast<int64_t>(prefill_list_.size());
  if (fine() && prefill.unit_count > 0) queue_.note("attention", ops().attention(&prefill, queue_.stream));
  a.units = units_[shape.view].of(std::span<const MoestroCudaAttentionUnit>(unit_list_));
  a.unit_count = static_cast<int64_t>(unit_list_.size());
  for (const MoestroCudaAttentionUnit& unit : unit_list_) a.pairs_most = std::max(a.pairs_most, unit.pairs);
  a.partial = partial_room(shape, a.unit_count, a.parts);
  if (fine() && a.unit_count > 0) queue_.note("attention", ops().attention(&a, queue_.stream));
}

int64_t CudaOps::partial_bytes_max(const AttentionShape& shape, int64_t n, int64_t positions) {
  const int64_t parts = positions / MOESTRO_CUDA_ATTENTION_PART + 1;
  return std::min(kPartialBytesMax, partial_bytes(shape, std::min(n, kParallelQueries), parts));
}

/// Sequences that decode differ in length, and in parallel all blocks have equal shares; many queries of prompts fill a
/// device anyway.
float* CudaOps::partial_room(const AttentionShape& shape, int64_t units, int64_t parts) {
  int64_t rows = 0;  // of q, whether or not all of them are of a sequence
  for (const MoestroCudaQuery& query : query_list_) rows = std::max<int64_t>(rows, query.row + 1);
  const int64_t bytes = partial_bytes(shape, rows, parts);
  if (parts == 1 || units == 0 || units > MOESTRO_CUDA_PARALLEL_UNITS || rows > kParallelQueries ||
      bytes > kPartialBytesMax)
    return nullptr;
  return static_cast<float*>(partial_.at_least(static_cast<uint64_t>(bytes)));
}

}  // namespace moestro::kernels::cuda
