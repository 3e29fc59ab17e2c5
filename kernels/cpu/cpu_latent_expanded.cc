// Latent attention on the CPU, expanded: a span's keys and values of all heads are made of its latents, then every head
// attends to its own. For long prompts these are fewer operations than with absorbed queries.

#include <algorithm>
#include <array>

#include "kernels/cpu/kv_rows.h"
#include "kernels/cpu/latent_call.h"

namespace moestro::kernels::cpu {

namespace {
/// Rows one after another, as a cache of which block i is the i-th.
constexpr auto kBlocksInOrder = [] {
  std::array<uint32_t, kLatentSpan / kKvBlockTokens> ids{};
  for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = i;
  return ids;
}();
template <class T>
KvPart rows_as_blocks(const T* first, int64_t stride) {
  return {.values = reinterpret_cast<const char*>(first),
          .block_bytes = stride * kKvBlockTokens * static_cast<int64_t>(sizeof(T))};
}
}  // namespace

void CpuOps::latent_expanded(const LatentCall& call, const LatentPiece& piece) {
  const LatentShape& s = call.shape;
  const KvPart latents = latent_part(s, call.cache, false), keys = latent_part(s, call.cache, true);
  const int64_t pairs = piece.queries * s.heads, last = piece.sequence->first_position + piece.queries - 1;
  rotate_queries(call, piece, latent_rope_.at_least(pairs * s.rope_dim));
  latent_top_.at_least(pairs), latent_sum_.at_least(pairs);
  const int64_t rows = pool_.threads() * kLatentRowsMax;
  latent_part_out_.at_least(rows * s.value_dim);
  latent_part_top_.at_least(rows), latent_part_sum_.at_least(rows);
  float* const latent_rows = latent_rows_.at_least(kLatentSpan * (s.kv_rank + s.rope_dim));
  float* const key_rows = latent_rows + kLatentSpan * s.kv_rank;
  const int64_t width = s.heads * s.expanded_dim();
  float* const expanded = expanded_rows_.at_least(kLatentSpan * width);
  uint16_t* const narrow =
      rounds_latents(call.cache.dtype) ? narrow_rows_.at_least(kLatentSpan * (width + s.rope_dim)) : nullptr;
  for (int64_t from = 0; from <= last; from += kLatentSpan) {
    const int64_t count = std::min(kLatentSpan, last + 1 - from);
    over_ranges(count, 1, count * s.kv_rank, [&](int64_t first, int64_t end, int) {
      for (int64_t i = first; i < end; ++i) {
        const int64_t position = from + i, slot = position % kKvBlockTokens;
        const uint32_t block = piece.sequence->blocks[static_cast<size_t>(position / kKvBlockTokens)];
        load_row(kernels_, call.cache.dtype, latents, block, slot, s.kv_rank, latent_rows + i * s.kv_rank);
        load_row(kernels_, call.cache.dtype, keys, block, slot, s.rope_dim, key_rows + i * s.rope_dim);
      }
    });
    matmul(latent_rows, count, call.kv_b, nullptr, expanded, Activations::kRounded);
    if (narrow != nullptr) {
      over_ranges(count, 1, count * width, [&](int64_t first, int64_t end, int) {
        kernels_.to_bf16(expanded + first * width, (end - first) * width, narrow + first * width);
        kernels_.to_bf16(key_rows + first * s.rope_dim, (end - first) * s.rope_dim,
                         narrow + kLatentSpan * width + first * s.rope_dim);
      });
    }
    pool_.run(ceil_div(piece.queries, kLatentRowsMax) * s.heads,
              [&](int64_t unit, int thread) { latent_expanded_head(call, piece, from, unit, thread); });
  }
  over_ranges(pairs, s.heads, pairs * s.value_dim, [&](int64_t first, int64_t end, int) {
    for (int64_t pair = first; pair < end; ++pair)
      kernels_.scale_by(call.result(piece, pair / s.heads, pair % s.heads), s.value_dim,
                        1.0f / latent_sum_.at_least(0)[pair]);
  });
}

/// At most kLatentRowsMax queries of one head, and the span at `from`.
void CpuOps::latent_expanded_head(const LatentCall& call, const LatentPiece& piece, int64_t from, int64_t unit,
                                  int thread) {
  const LatentShape& s = call.shape;
  const int64_t head = unit % s.heads, first = unit / s.heads * kLatentRowsMax, stride = s.heads * s.expanded_dim();
  const int64_t at = thread * kLatentRowsMax;
  LatentRows rows;
  LatentTask task;
  task.rows = std::min(kLatentRowsMax, piece.queries - first);
  for (int64_t r = 0; r < task.rows; ++r) {
    rows.q[r] = call.query(piece, first + r, head);
    rows.rope[r] = latent_rope_.at_least(0) + ((first + r) * s.heads + head) * s.rope_dim;
    rows.out[r] = latent_part_out_.at_least(0) + (at + r) * s.value_dim;
    rows.seen[r] = seen_of(piece.sequence->first_position + first + r, from, kLatentSpan);
  }
  rows.give_to(task);
  task.top = latent_part_top_.at_least(0) + at;
  task.sum = latent_part_sum_.at_least(0) + at;
  task.key_dim = s.nope_dim, task.rope_dim = s.rope_dim, task.value_dim = s.value_dim;
  task.key_stride = task.value_stride = stride, task.rope_stride = s.rope_dim;
  const auto give_rows = [&](const auto* expanded, const auto* rope) {
    task.keys = rows_as_blocks(expanded + head * s.expanded_dim(), stride);
    task.values = rows_as_blocks(expanded + head * s.expanded_dim() + s.nope_dim, stride);
    task.rope_keys = rows_as_blocks(rope, s.rope_dim);
  };
  const bool of_bf16 = rounds_latents(call.cache.dtype);
  if (of_bf16)
    give_rows(narrow_rows_.at_least(0), narrow_rows_.at_least(0) + kLatentSpan * stride);
  else
    give_rows(expanded_rows_.at_least(0), latent_rows_.at_least(0) + kLatentSpan * s.kv_rank);
  task.blocks = kBlocksInOrder.data();
  task.scale = s.scale;
  run_latent(task, of_bf16 ? DType::kBF16 : DType::kF32, thread);
  for (int64_t r = 0; r < task.rows; ++r) {
    if (rows.seen[r] == 0) continue;
    const int64_t pair = (first + r) * s.heads + head;
    put_part(kernels_,
             {call.result(piece, first + r, head), latent_top_.at_least(0) + pair, latent_sum_.at_least(0) + pair},
             {rows.out[r], task.top + r, task.sum + r}, s.value_dim, from == 0);
  }
}

}  // namespace moestro::kernels::cpu
