// CudaOps: latent attention.

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/attention_limits.h"
#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
/// Absorbed queries of so many (query, head) pairs are computed at once: those of a long step would take many times the
/// memory of its activations.
constexpr int64_t kPassPairs = 16384;

int64_t pass_queries(const LatentShape& shape) { return std::max<int64_t>(1, kPassPairs / shape.heads); }
int64_t part_bytes(const LatentShape& shape) { return (shape.kv_rank + MOESTRO_CUDA_PARTIAL_HEAD) * kFloat; }
int64_t parts_bytes(const LatentShape& shape, int64_t queries, int64_t parts) {
  return queries * shape.heads * parts * part_bytes(shape);
}
int64_t absorbed_bytes(const LatentShape& shape, int64_t queries) {
  return queries * shape.heads * MOESTRO_CUDA_LATENT_WIDTH(shape.kv_rank) * kFloat;
}
int64_t attended_bytes(const LatentShape& shape, int64_t queries) {
  return queries * shape.heads * shape.kv_rank * kFloat;
}
bool fits_tiles(const LatentShape& s) { return s.kv_rank % 8 == 0 && s.rope_dim % 8 == 0; }
int64_t tiles_bytes(const LatentShape& shape, int64_t pairs) {
  return 2 * MOESTRO_CUDA_LATENT_BLOCKS * pairs * part_bytes(shape);
}

MoestroCudaLatent latent_of(const LatentShape& shape, const KvView& cache) {
  MoestroCudaLatent l{};
  l.heads = shape.heads;
  l.kv_rank = shape.kv_rank;
  l.nope_dim = shape.nope_dim, l.rope_dim = shape.rope_dim, l.value_dim = shape.value_dim;
  l.interleaved = shape.interleaved;
  l.scale = shape.scale;
  l.dtype = static_cast<int32_t>(cache.dtype);
  l.data = cache.data;
  l.block_bytes = latent_block_bytes(shape, cache.dtype);
  l.scales_offset = latent_scales_offset(shape, cache.dtype);
  return l;
}

}  // namespace

/// A cache of f32 is rounded for prompts alone, as that of heads is.
bool CudaOps::rounds_latents(const LatentShape& shape, DType cache, const AttentionSequence& s) const {
  return !options_.deterministic && fits_tiles(shape) && s.tokens * shape.heads >= kTilePairs &&
         (cache != DType::kF32 || s.tokens > 1);
}

CudaOps::LatentPass& CudaOps::latent_pass(const LatentShape& shape, bool rounded, int64_t query) {
  if (!latent_passes_.empty()) {
    LatentPass& last = latent_passes_.back();
    if (last.rounded == rounded && last.queries < pass_queries(shape)) return last;
  }
  LatentPass pass{};
  pass.first_query = query;
  pass.first_unit = static_cast<int64_t>(latent_unit_list_.size());
  pass.rounded = rounded;
  pass.most = rounded ? MOESTRO_CUDA_LATENT_TILE_PAIRS : MOESTRO_CUDA_LATENT_PAIRS;
  pass.groups = std::max<int64_t>(1, ceil_div(shape.heads, pass.most));
  return latent_passes_.emplace_back(pass);
}

void CudaOps::add_latent_unit(LatentPass& pass, int64_t first_pair, int64_t pairs, int64_t last_position) {
  latent_unit_list_.push_back(
      {static_cast<int32_t>(first_pair), static_cast<int32_t>(pairs), static_cast<int32_t>(pass.tiles)});
  pass.pairs_most = std::max(pass.pairs_most, static_cast<int32_t>(pairs));
  if (++pass.units % pass.groups == 0) pass.tiles += last_position / MOESTRO_CUDA_LATENT_TILE + 1;
}

/// Units of neighbouring pairs, or, of many heads, of equal shares of a query's.
void CudaOps::add_latent_units(const LatentShape& shape, LatentPass& pass, int64_t position, int64_t queries) {
  const int64_t heads = shape.heads, first = pass.queries * heads, pairs = queries * heads;
  if (pass.groups == 1)
    for (int64_t p = 0; p < pairs; p += pass.most) {
      const int64_t count = std::min(pass.most, pairs - p);
      add_latent_unit(pass, first + p, count, position + (p + count - 1) / heads);
    }
  else
    for (int64_t i = 0; i < queries * pass.groups; ++i) {
      const int64_t query = i / pass.groups, group = i % pass.groups, head = heads * group / pass.groups;
      add_latent_unit(pass, first + query * heads + head, heads * (group + 1) / pass.groups - head, position + query);
    }
  pass.queries += queries;
}

/// Sequences that are rounded come first, so that each kind is in as few passes as possible.
void CudaOps::cut_latents(const LatentShape& shape, DType cache, std::span<const AttentionSequence> sequences) {
  latent_order_.clear();
  for (const bool rounded : {true, false})
    for (const AttentionSequence& s : sequences)
      if (rounds_latents(shape, cache, s) == rounded) latent_order_.push_back(s);
  flatten(latent_order_);
  latent_unit_list_.clear();
  latent_passes_.clear();
  int64_t query = 0;
  for (const AttentionSequence& s : latent_order_)
    for (int64_t done = 0; done < s.tokens;) {
      LatentPass& pass = latent_pass(shape, rounds_latents(shape, cache, s), query);
      const int64_t count = std::min(pass_queries(shape) - pass.queries, s.tokens - done);
      add_latent_units(shape, pass, s.first_position + done, count);
      done += count, query += count;
    }
}

int64_t CudaOps::send_sequences(const LatentShape& shape, DType cache, std::span<const AttentionSequence> sequences) {
  cut_latents(shape, cache, sequences);
  queries_[0].of(std::span<const MoestroCudaQuery>(query_list_));
  blocks_[0].of(std::span<const uint32_t>(block_list_));
  latent_units_.of(std::span<const MoestroCudaLatentUnit>(latent_unit_list_));
  return launched_parts();
}

void CudaOps::latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                           const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  cut_latents(shape, cache.dtype, sequences);  // in the order in which attention sends them too
  if (query_list_.empty()) return;
  MoestroCudaLatentWrite a{};
  a.latent = latent_of(shape, cache);
  a.queries = queries_[0].of(std::span<const MoestroCudaQuery>(query_list_));
  a.blocks = blocks_[0].of(std::span<const uint32_t>(block_list_));
  a.count = static_cast<int64_t>(query_list_.size());
  a.kv = kv, a.norm = norm, a.eps = eps;
  a.cos = cos, a.sin = sin;
  if (fine()) queue_.note("latent_write", ops().latent_write(&a, queue_.stream));
}

void CudaOps::latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                               const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                               float* out) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  MOESTRO_CHECK(kv_b.dtype <= DType::kF16 && kv_b.rows == shape.heads * shape.expanded_dim() &&
                    kv_b.cols == shape.kv_rank,
                "weights of the keys and values of all heads");
  cut_latents(shape, cache.dtype, sequences);
  if (query_list_.empty()) return;
  MoestroCudaLatentAttention a{};
  a.latent = latent_of(shape, cache);
  const auto* queries = queries_[0].of(std::span<const MoestroCudaQuery>(query_list_));
  const auto* units = latent_units_.of(std::span<const MoestroCudaLatentUnit>(latent_unit_list_));
  a.blocks = blocks_[0].of(std::span<const uint32_t>(block_list_));
  a.q = q, a.cos = cos, a.sin = sin;
  a.kv_b = kv_b.data, a.kv_b_dtype = static_cast<int32_t>(kv_b.dtype);
  a.parts = launched_parts();
  a.out = out;
  const auto most = static_cast<int64_t>(query_list_.size());
  a.absorbed = latents_.at_least(static_cast<uint64_t>(latent_bytes_max(shape, most)));
  for (const LatentPass& pass : latent_passes_) {
    if (!fine()) return;
    a.queries = queries + pass.first_query, a.query_count = pass.queries;
    a.units = units + pass.first_unit, a.unit_count = pass.units, a.groups = pass.groups;
    a.pairs_most = pass.pairs_most, a.rounded = pass.rounded;
    a.attended = static_cast<float*>(a.absorbed) + absorbed_bytes(shape, pass.queries) / kFloat;
    a.partial = latent_partial_room(shape, pass, a.parts);
    if (fine()) queue_.note("latent_attention", ops().latent_attention(&a, queue_.stream));
  }
}

float* CudaOps::latent_partial_room(const LatentShape& shape, const LatentPass& pass, int64_t parts) {
  int64_t bytes = 0;
  if (pass.rounded) {
    bytes = tiles_bytes(shape, pass.pairs_most);
  } else {
    bytes = parts_bytes(shape, pass.queries, parts);
    if (parts == 1 || pass.queries > kParallelQueries || bytes > kPartialBytesMax) return nullptr;
  }
  return static_cast<float*>(partial_.at_least(static_cast<uint64_t>(bytes)));
}

int64_t CudaOps::latent_bytes_max(const LatentShape& shape, int64_t n) {
  const int64_t queries = std::min(n, pass_queries(shape));
  return absorbed_bytes(shape, queries) + attended_bytes(shape, queries);
}

int64_t CudaOps::latent_partial_bytes_max(const LatentShape& shape, int64_t n, int64_t positions) {
  const int64_t parts = positions / MOESTRO_CUDA_ATTENTION_PART + 1,
                queries = std::min({n, kParallelQueries, pass_queries(shape)}),
                in_f32 = std::min(kPartialBytesMax, parts_bytes(shape, queries, parts));
  return fits_tiles(shape) ? std::max(in_f32, tiles_bytes(shape, MOESTRO_CUDA_LATENT_TILE_PAIRS)) : in_f32;
}

}  // namespace moestro::kernels::cuda
