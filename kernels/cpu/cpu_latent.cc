// Latent attention on the CPU, absorbed: queries meet the latents themselves, span by span, and each latent is read
// from memory once for all heads.

#include <algorithm>
#include <span>

#include "kernels/cpu/kv_rows.h"
#include "kernels/cpu/latent_call.h"

namespace moestro::kernels::cpu {

namespace {
/// Absorbed queries of so many (query, head) pairs are computed at once: those of a long step would take many times the
/// memory of its activations.
constexpr int64_t kPairsMax = 8192;
/// Spans that are computed before their parts are added up, for each thread.
constexpr int64_t kSlotsPerThread = 8;
constexpr int64_t kRowsOfChain = 16;  ///< that one thread adds up

/// The components of x that are rotated, in the order in which they are kept.
void rotate(const LatentShape& shape, const float* x, const float* cos, const float* sin, float* y) {
  const int64_t half = shape.rope_dim / 2;
  for (int64_t j = 0; j < half; ++j) {
    const float a = shape.interleaved ? x[2 * j] : x[j], b = shape.interleaved ? x[2 * j + 1] : x[j + half];
    y[j] = a * cos[j] - b * sin[j];
    y[j + half] = b * cos[j] + a * sin[j];
  }
}

/// By the multiply-adds of a head: those of the expansion take about as long as those of scores and values.
bool expands(const LatentShape& s, const AttentionSequence& of, bool deterministic) {
  if (s.form != LatentShape::Form::kFaster) return s.form == LatentShape::Form::kExpanded;
  if (deterministic) return false;  // where a prompt is cut must change nothing
  const auto n = static_cast<double>(of.tokens), end = static_cast<double>(of.first_position + of.tokens),
             pairs = n * (end - (n - 1) / 2), product = static_cast<double>(s.kv_rank * s.expanded_dim());
  return end * product + pairs * static_cast<double>(s.query_dim() + s.value_dim) <
         n * product + pairs * static_cast<double>(2 * s.kv_rank + s.rope_dim);
}
}  // namespace

void CpuOps::latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                          const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  const KvPart latents = latent_part(shape, cache, false), keys = latent_part(shape, cache, true);
  const int64_t half = shape.rope_dim / 2;
  float* const latent = latent_rows_.at_least(shape.kv_rank + shape.rope_dim);
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t row = s.first_token + i, position = s.first_position + i, slot = position % kKvBlockTokens;
      const uint32_t block = s.blocks[static_cast<size_t>(position / kKvBlockTokens)];
      const float* const x = kv + row * (shape.kv_rank + shape.rope_dim);
      kernels_.rms_norm(x, 1, shape.kv_rank, norm, eps, latent);
      rotate(shape, x + shape.kv_rank, cos + row * half, sin + row * half, latent + shape.kv_rank);
      store_row(kernels_, cache.dtype, latents, block, slot, latent, shape.kv_rank);
      store_row(kernels_, cache.dtype, keys, block, slot, latent + shape.kv_rank, shape.rope_dim);
    }
  }
}

void CpuOps::latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                              const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                              float* out) {
  MOESTRO_CHECK(is_kv_dtype(cache.dtype), "a KV cache is f32, bf16, f16 or int8");
  MOESTRO_CHECK(!has_parameters(kv_b.dtype) && !is_blocks(kv_b.dtype) &&
                    kv_b.rows == shape.heads * shape.expanded_dim() && kv_b.cols == shape.kv_rank,
                "weights of the keys and values of all heads");
  const LatentCall call{shape, q, cos, sin, kv_b, cache, out};
  for (ThreadScratch& s : thread_scratch_) {
    s.scores.at_least(kLatentRowsMax * kLatentSpan);
    s.up.at_least(kLatentRowsMax * kKvBlockTokens);
    s.widened.at_least(kLatentRowsMax *
                       latent_rounded_numbers(std::max(shape.kv_rank, shape.nope_dim), shape.rope_dim));
  }
  const int64_t queries_max = std::max<int64_t>(1, kPairsMax / shape.heads);
  int64_t queries = 0;
  latent_pieces_.clear();
  const auto flush = [&] {
    if (queries > 0) latent_absorbed(call, queries * shape.heads);
    latent_pieces_.clear();
    queries = 0;
  };
  for (const AttentionSequence& s : sequences) {
    if (s.tokens > 0 && expands(shape, s, options_.deterministic)) {
      latent_expanded(call, {&s, 0, s.tokens, 0});
      continue;
    }
    for (int64_t i = 0; i < s.tokens;) {
      if (queries == queries_max) flush();
      const int64_t count = std::min(queries_max - queries, s.tokens - i);
      latent_pieces_.push_back({&s, i, count, queries * shape.heads});
      queries += count, i += count;
    }
  }
  flush();
}

bool CpuOps::rounds_latents(DType cache) const {
  return !options_.deterministic && cache == DType::kBF16 && kernels_.latent_rounded != nullptr;
}

/// Keys and values are of `dtype`.
void CpuOps::run_latent(LatentTask& task, DType dtype, int thread) {
  task.scores = scratch(thread).scores.at_least(0);
  task.more = scratch(thread).up.at_least(0);
  task.rounded = scratch(thread).widened.at_least(0);
  task.panel = panel(thread);
  if (rounds_latents(dtype)) return kernels_.latent_rounded(task);
  kernels_.latent[static_cast<size_t>(dtype)](task);
}

void CpuOps::rotate_queries(const LatentCall& call, const LatentPiece& piece, float* to) {
  const LatentShape& s = call.shape;
  const int64_t half = s.rope_dim / 2;
  over_ranges(piece.queries, 1, piece.queries * s.heads * s.rope_dim, [&](int64_t first, int64_t end, int) {
    for (int64_t i = first; i < end; ++i) {
      const int64_t row = call.row_of(piece, i);
      for (int64_t h = 0; h < s.heads; ++h)
        rotate(s, call.query(piece, i, h) + s.nope_dim, call.cos + row * half, call.sin + row * half,
               to + (piece.at + i * s.heads + h) * s.rope_dim);
    }
  });
}

template <class Body>
void CpuOps::over_latent_heads(const LatentCall& call, int64_t pairs, const Body& body) {
  const LatentShape& s = call.shape;
  latent_queries_.clear();  // piece, query
  for (size_t p = 0; p < latent_pieces_.size(); ++p)
    for (int64_t i = 0; i < latent_pieces_[p].queries; ++i) latent_queries_.emplace_back(static_cast<int64_t>(p), i);
  const auto queries = static_cast<int64_t>(latent_queries_.size()), parts = ceil_div(queries, kLatentRowsMax);
  const auto run = [&](int64_t unit, int thread) {
    const int64_t first = unit % parts * kLatentRowsMax, count = std::min(kLatentRowsMax, queries - first);
    body(unit / parts, std::span(latent_queries_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
         thread);
  };
  if (pairs * s.kv_rank * s.nope_dim < kInlineWork) {
    for (int64_t i = 0; i < s.heads * parts; ++i) run(i, 0);
  } else {
    pool_.run(s.heads * parts, run);
  }
}

void CpuOps::latent_absorbed(const LatentCall& call, int64_t pairs) {
  const LatentShape& s = call.shape;
  const auto dtype = static_cast<size_t>(call.kv_b.dtype);
  const int64_t row_bytes = s.kv_rank * dtype_bytes(call.kv_b.dtype);
  const auto* const weights = static_cast<const std::byte*>(call.kv_b.data);
  float* const absorbed = latent_q_.at_least(pairs * s.kv_rank);
  float* const rotated = latent_rope_.at_least(pairs * s.rope_dim);
  float* const attended = latent_out_.at_least(pairs * s.kv_rank);
  for (const LatentPiece& piece : latent_pieces_) rotate_queries(call, piece, rotated);
  over_latent_heads(call, pairs, [&](int64_t h, auto queries, int) {
    LatentRows rows;
    for (size_t n = 0; n < queries.size(); ++n) {
      const auto [p, i] = queries[n];
      const LatentPiece& piece = latent_pieces_[static_cast<size_t>(p)];
      rows.q[n] = call.query(piece, i, h);
      rows.out[n] = absorbed + (piece.at + i * s.heads + h) * s.kv_rank;
    }
    kernels_.row_sums[dtype]({.x = rows.q,
                              .n = static_cast<int64_t>(queries.size()),
                              .w = weights + h * s.expanded_dim() * row_bytes,
                              .rows = s.nope_dim,
                              .cols = s.kv_rank,
                              .y = rows.out});
  });
  latent_spans(call, pairs);
  const float* const sums = latent_sum_.at_least(pairs);
  over_latent_heads(call, pairs, [&](int64_t h, auto queries, int thread) {
    LatentRows rows;
    for (size_t n = 0; n < queries.size(); ++n) {
      const auto [p, i] = queries[n];
      const LatentPiece& piece = latent_pieces_[static_cast<size_t>(p)];
      const int64_t pair = piece.at + i * s.heads + h;
      kernels_.scale_by(attended + pair * s.kv_rank, s.kv_rank, 1.0f / sums[pair]);
      rows.q[n] = attended + pair * s.kv_rank;
      rows.out[n] = call.result(piece, i, h);
    }
    WeightRun run;
    run.w = weights + (h * s.expanded_dim() + s.nope_dim) * row_bytes;
    run.row_bytes = row_bytes;
    run.cols = s.kv_rank;
    ProductTask task;
    task.x = rows.q, task.n = static_cast<int64_t>(queries.size()), task.y = rows.out;
    task.runs = &run, task.run_count = 1;
    task.rows = s.value_dim;
    task.panel = panel(thread);
    kernels_.product[dtype](task);
  });
}

/// The softmax of all pairs over their spans, in the order of the spans: latent_out_, latent_top_ and latent_sum_.
void CpuOps::latent_spans(const LatentCall& call, int64_t pairs) {
  const LatentShape& s = call.shape;
  const int64_t slots = kSlotsPerThread * pool_.threads();
  latent_top_.at_least(pairs), latent_sum_.at_least(pairs);
  latent_part_out_.at_least(slots * kLatentRowsMax * s.kv_rank);
  latent_part_top_.at_least(slots * kLatentRowsMax), latent_part_sum_.at_least(slots * kLatentRowsMax);
  latent_units_.clear();
  int64_t work = 0;
  const auto flush = [&] {
    const auto run = [&](int64_t slot, int thread) {
      latent_span(call, latent_units_[static_cast<size_t>(slot)], slot, thread);
    };
    const auto units = static_cast<int64_t>(latent_units_.size());
    if (work < kInlineWork) {
      for (int64_t i = 0; i < units; ++i) run(i, 0);
    } else {
      pool_.run(units, run);
    }
    add_latent_parts(call);
    latent_units_.clear();
    work = 0;
  };
  const int64_t heads = std::min(s.heads, kLatentRowsMax), queries = kLatentRowsMax / heads;
  for (const LatentPiece& piece : latent_pieces_) {
    for (int64_t i = 0; i < piece.queries; i += queries) {
      const int64_t count = std::min(queries, piece.queries - i);
      const int64_t end = piece.sequence->first_position + piece.first_query + i + count;
      for (int64_t h = 0; h < s.heads; h += heads) {
        for (int64_t span = 0; span * kLatentSpan < end; ++span) {
          if (static_cast<int64_t>(latent_units_.size()) == slots) flush();
          latent_units_.push_back({&piece, i, count, h, std::min(heads, s.heads - h), span});
          work += count * heads * std::min(kLatentSpan, end - span * kLatentSpan) * s.kv_rank;
        }
      }
    }
  }
  flush();
}

void CpuOps::latent_span(const LatentCall& call, const LatentUnit& unit, int64_t slot, int thread) {
  const LatentShape& s = call.shape;
  const LatentPiece& piece = *unit.piece;
  LatentRows rows;
  LatentTask task;
  task.rows = unit.queries * unit.heads;
  for (int64_t r = 0; r < task.rows; ++r) {
    const int64_t query = unit.first_query + r / unit.heads;
    const int64_t pair = piece.at + query * s.heads + unit.first_head + r % unit.heads;
    rows.q[r] = latent_q_.at_least(0) + pair * s.kv_rank;
    rows.rope[r] = latent_rope_.at_least(0) + pair * s.rope_dim;
    rows.out[r] = latent_part_out_.at_least(0) + (slot * kLatentRowsMax + r) * s.kv_rank;
    rows.seen[r] = seen_of(piece.sequence->first_position + piece.first_query + query, unit.span * kLatentSpan,
                           kLatentSpan);
  }
  rows.give_to(task);
  task.top = latent_part_top_.at_least(0) + slot * kLatentRowsMax;
  task.sum = latent_part_sum_.at_least(0) + slot * kLatentRowsMax;
  task.key_dim = task.key_stride = task.value_dim = task.value_stride = s.kv_rank;
  task.rope_dim = task.rope_stride = s.rope_dim;
  task.keys = task.values = latent_part(s, call.cache, false);
  task.rope_keys = latent_part(s, call.cache, true);
  task.blocks = piece.sequence->blocks.data() + unit.span * (kLatentSpan / kKvBlockTokens);
  task.scale = s.scale;
  run_latent(task, call.cache.dtype, thread);
}

/// Adds up what the units have computed. The spans of one piece's queries and heads are a chain of units in order.
void CpuOps::add_latent_parts(const LatentCall& call) {
  const LatentShape& s = call.shape;
  latent_chains_.clear();  // first unit, row of it
  int64_t numbers = 0;
  for (size_t u = 0; u < latent_units_.size(); ++u) {
    const LatentUnit& unit = latent_units_[u];
    numbers += unit.queries * unit.heads * s.kv_rank;
    if (u > 0 && unit.span == latent_units_[u - 1].span + 1) continue;
    for (int64_t r = 0; r < unit.queries * unit.heads; r += kRowsOfChain)
      latent_chains_.emplace_back(static_cast<int64_t>(u), r);
  }
  const auto run = [&](int64_t chain, int) {
    const auto [first, row] = latent_chains_[static_cast<size_t>(chain)];
    for (auto slot = first; slot < static_cast<int64_t>(latent_units_.size()); ++slot) {
      const LatentUnit& unit = latent_units_[static_cast<size_t>(slot)];
      if (slot > first && unit.span != latent_units_[static_cast<size_t>(slot - 1)].span + 1) return;
      const LatentPiece& piece = *unit.piece;
      for (int64_t r = row; r < std::min(row + kRowsOfChain, unit.queries * unit.heads); ++r) {
        const int64_t query = unit.first_query + r / unit.heads, from = unit.span * kLatentSpan;
        if (piece.sequence->first_position + piece.first_query + query < from) continue;  // it sees nothing of it
        const int64_t pair = piece.at + query * s.heads + unit.first_head + r % unit.heads;
        const int64_t part = slot * kLatentRowsMax + r;
        put_part(kernels_,
                 {latent_out_.at_least(0) + pair * s.kv_rank, latent_top_.at_least(0) + pair,
                  latent_sum_.at_least(0) + pair},
                 {latent_part_out_.at_least(0) + part * s.kv_rank, latent_part_top_.at_least(0) + part,
                  latent_part_sum_.at_least(0) + part},
                 s.kv_rank, unit.span == 0);
      }
    }
  };
  const auto chains = static_cast<int64_t>(latent_chains_.size());
  if (numbers < kInlineWork) {
    for (int64_t i = 0; i < chains; ++i) run(i, 0);
  } else {
    pool_.run(chains, run);
  }
}

}  // namespace moestro::kernels::cpu
