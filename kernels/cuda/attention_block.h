#pragma once
// Attention over the paged cache in f32. A unit is up to kPairs (query, head) pairs of one sequence that share a KV
// head, and so the loads of keys and values. Positions are visited in parts of kPart, anchored at 0, and a block
// computes a part at a time: each of its warps takes 32 positions, which gives scores, their maximum m, the sum l of
// their exponentials, and the weighted values. The warps' results are put together in order, and so are the parts: by
// this block, or, if they were computed in parallel, by a second kernel with the same fold(). So a query's result does
// not depend on that, on the other pairs, or on where its prompt was cut. Scores are in units of log 2.
//
// Keys and values come through a ring of tiles in shared memory, one ring a warp, so that the next tiles are on their
// way while one is used, also across the end of a part. The lanes that share a key have 8 of its elements each.
// Queries and weighted values stay in registers. (Flash decoding: Dao et al. 2023.)

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/attention_tasks.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
inline constexpr int kWarpKeys = kPart / kAttentionWarps;  // of a part that a warp takes: one for each lane
inline constexpr int kWarpBlocks = kWarpKeys / kTokensOfBlock;
static_assert(kWarpKeys == kWarp);

template <typename N, int kDims, int kPairs, int kRing>
struct AttentionBlock {
  using Stored = typename N::Stored;
  static constexpr bool kScaled = sizeof(Stored) == 1;
  static constexpr int kLanes = kDims / 8;          ///< that share a key; kDims is head_dim, padded
  static constexpr int kAtOnce = kWarp / kLanes;    ///< keys of a warp
  static constexpr int kTileKeys = at_most<int>(kTokensOfBlock, 4096 / (kDims * static_cast<int>(sizeof(Stored))));
  static constexpr int kTiles = kWarpKeys / kTileKeys;  ///< of keys of a warp's share of a part; and as many of values
  static constexpr int kTileBytes = kTileKeys * kDims * static_cast<int>(sizeof(Stored));
  static constexpr int kSlotBytes = kTileBytes + (kScaled ? kTokensOfBlock * 4 : 0);
  static constexpr int kOwned = at_least(1, kPairs * kDims / kAttentionThreads);  ///< outputs of a thread
  static constexpr int kHeld = kPairs * 8 / kAtOnce;  ///< of a lane, when lanes that have the same elements have shared
  static_assert(kTileKeys % kAtOnce == 0 && kRing >= 2);

  struct alignas(16) Room {
    char ring[kAttentionWarps][kRing][kSlotBytes];
    float values[kAttentionWarps][kPairs][kDims];
    float weights[kAttentionWarps][kWarpKeys][kPairs];  ///< initially scores; negative: not seen
    Softmax part[kAttentionWarps][kPairs];
  };

  const MoestroCudaAttention& a;
  Room& room;
  const UnitList& list;

  // What is computed.
  Task at = {};
  PairSight first = {}, last = {};  ///< of the unit's pairs, whose positions ascend
  float q[kPairs][8] = {};
  int64_t own_row = 0;      ///< of the pair whose outputs the thread has
  const char* slot = nullptr;
  int warp = uniform(warp_id());
  int slot_index = kRing - 1;

  /// Where this warp's share of a task's keys and values is.
  struct Source {
    int head = 0;
    uint32_t seen = 0;   ///< bits of tiles
    uint32_t block = 0;  ///< the block table's entry that belongs to the lane
  };
  // What is being copied: a tile of a task. The block table's entries of the task after it are on their way.
  int ahead_task = 0, ahead_end = 0, ahead_tile = 0;
  Source ahead = {}, after = {};
  Task after_task = {};
  const char* ahead_base[kWarpBlocks] = {};

  __device__ static int element() { return lane_id() % kLanes * 8; }  ///< this lane's first

  // --- copies ---

  __device__ Source source_of(const Task& t) const {
    const UnitRecord& r = list.records[t.unit];
    const int last_position = uniform(r.last_position),
              index = t.part * (kPart / kTokensOfBlock) + warp * kWarpBlocks + lane_id() % kWarpBlocks;
    return {t.head,
            seen_tiles(sight_at(a, uniform(r.first_position)), sight_at(a, last_position), warp_position(t.part)),
            index <= last_position / kTokensOfBlock ? a.blocks[r.first_block + index] : 0};
  }

  /// The first position of the warp's share of a part.
  __device__ int warp_position(int part) const { return part * kPart + warp * kWarpKeys; }

  /// Bits of the tiles from position p on of which any pair sees anything.
  __device__ static uint32_t seen_tiles(const PairSight& first, const PairSight& last, int p) {
    uint32_t tiles = 0;
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile, p += kTileKeys)
      if (p <= last.position && (p + kTileKeys > first.begin || p < last.sinks)) tiles |= 1u << tile;
    return tiles;
  }

  __device__ void begin_ahead(int first_task, int end) {
    ahead_task = first_task;
    ahead_end = end;
    if (first_task == end) return;
    at = after_task = list.locate(first_task);
    after = source_of(after_task);
  }

  __device__ void enter_ahead() {
    ahead = after;
    MOESTRO_UNROLL
    for (int b = 0; b < kWarpBlocks; ++b)
      ahead_base[b] = static_cast<const char*>(a.kv.data) + a.kv.block_bytes * __shfl_sync(kWholeWarp, ahead.block, b);
    if (ahead_task + 1 == ahead_end) return;
    list.advance(after_task);
    after = source_of(after_task);
  }

  /// Begins the copy of the next tile, if there is one that is seen. One group in any case.
  __device__ void copy_next(char* to) {
    if (ahead_task < ahead_end) {
      if (ahead_tile == 0) enter_ahead();
      const int tile = ahead_tile % kTiles;
      const bool value = ahead_tile >= kTiles;
      if ((ahead.seen >> tile & 1u) != 0) copy_tile(to, tile * kTileKeys, value);
      if (++ahead_tile == 2 * kTiles) {
        ahead_tile = 0;
        ++ahead_task;
      }
    }
    commit_copies();
  }

  __device__ void copy_tile(char* to, int key, bool value) const {
    const int row_bytes = static_cast<int>(a.kv.head_dim) * static_cast<int>(sizeof(Stored)),
              head = (value ? static_cast<int>(a.kv.kv_heads) : 0) + ahead.head,
              bytes = kTileKeys * row_bytes;
    const char* block = ahead_base[0];
    MOESTRO_UNROLL
    for (int b = 1; b < kWarpBlocks; ++b)
      if (key >= b * kTokensOfBlock) block = ahead_base[b];
    const char* from =
        block + (static_cast<int64_t>(head) * kTokensOfBlock + key % kTokensOfBlock) * row_bytes + lane_id() * 16;
    char* at_lane = to + lane_id() * 16;
    constexpr int kStep = kWarp * 16;
    if (bytes == kTileBytes && kTileBytes % kStep == 0) {
      MOESTRO_UNROLL
      for (int byte = 0; byte < kTileBytes; byte += kStep) copy_async16(at_lane + byte, from + byte);
    } else {
      MOESTRO_NO_UNROLL
      for (int byte = 0; byte < bytes - lane_id() * 16; byte += kStep) copy_async16(at_lane + byte, from + byte);
    }
    if (kScaled && lane_id() < kTokensOfBlock / 4)
      copy_async16(to + kTileBytes + lane_id() * 16,
                   block + a.kv.scales_offset + head * kTokensOfBlock * 4 + lane_id() * 16);
  }

  /// Waits for the next tile, and begins the copy of another where the last one lay.
  __device__ void next_tile() {
    wait_copies<kRing - 2>();
    __syncwarp();
    char(&ring)[kRing][kSlotBytes] = room.ring[warp];
    copy_next(ring[slot_index]);
    slot_index = slot_index + 1 == kRing ? 0 : slot_index + 1;
    slot = ring[slot_index];
  }

  // --- a part ---

  __device__ int pairs() const { return uniform(list.records[at.unit].unit.pairs); }
  __device__ PairSight sight(int pair) const {
    return first.position == last.position ? last : sight_at(a, query_of(a, list.records[at.unit].unit, pair).position);
  }

  __device__ void load_query(const float* of, int pair, float (&to)[8]) const {
    const int count = static_cast<int>(a.kv.head_dim) - element();
    const float* from = of + row_of(a, list.records[at.unit].unit, at.head, pair) * a.kv.head_dim + element();
    MOESTRO_UNROLL
    for (int e = 0; e < 8; ++e) to[e] = e < count ? from[e] : 0.0f;
  }

  /// What a unit and KV head's tasks need.
  __device__ void enter() {
    first = sight_at(a, uniform(list.records[at.unit].first_position));
    last = sight_at(a, uniform(list.records[at.unit].last_position));
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      if (pair < pairs()) {
        load_query(a.q, pair, q[pair]);
      } else {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e) q[pair][e] = 0.0f;
      }
    }
    if (owned_pair() < pairs()) own_row = row_of(a, list.records[at.unit].unit, at.head, owned_pair());
  }

  /// How wide heads are: as kDims, narrower but of whole eights, or of any width.
  enum class Width { kFull, kEights, kAny };

  /// This lane's elements of a row of the tile.
  template <Width kWidth>
  __device__ void load_row(int key, float (&to)[8]) const {
    const int dims = kWidth == Width::kFull ? kDims : static_cast<int>(a.kv.head_dim), d = element();
    const auto* row = reinterpret_cast<const Stored*>(slot) + key * dims;
    if constexpr (kWidth == Width::kAny) {
      MOESTRO_UNROLL
      for (int e = 0; e < 8; ++e) to[e] = d + e < dims ? N::value(row[d + e]) : 0.0f;
    } else {
      load8<N>(row + (kWidth == Width::kFull || d < dims ? d : 0), to);
      if constexpr (kWidth == Width::kEights) {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e) to[e] = d < dims ? to[e] : 0.0f;
      }
    }
  }
  __device__ float scale_of(int key) const {
    return kScaled ? reinterpret_cast<const float*>(slot + kTileBytes)[key] : 1.0f;
  }

  /// Scores of the tile's keys, the first of which is the warp's `from`th.
  __device__ void score_tile(int from) {
    if (a.kv.head_dim == kDims) {
      MOESTRO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; i += kBatch) score_keys<Width::kFull>(from, i * kAtOnce);
    } else if (a.kv.head_dim % 8 == 0) {
      MOESTRO_NO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; i += kBatch) score_keys<Width::kEights>(from, i * kAtOnce);
    } else {
      MOESTRO_NO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; i += kBatch) score_keys<Width::kAny>(from, i * kAtOnce);
    }
  }

  /// Keys whose products are added up over lanes together: so many that each lane is left with one, if a tile has them.
  static constexpr int kBatch = at_most(kTileKeys / kAtOnce, kLanes / kPairs);

  template <Width kWidth>
  __device__ void score_keys(int from, int tile_key) {
    float dots[kBatch * kPairs] = {};
    MOESTRO_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      float k[8];
      load_row<kWidth>(tile_key + i * kAtOnce + lane_id() / kLanes, k);
      MOESTRO_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e)
          dots[i * kPairs + pair] = multiply_add(q[pair][e], k[e], dots[i * kPairs + pair]);
      }
    }
    const int which = sum_dots(dots);
    if (which < 0) return;
    const int key = tile_key + which / kPairs * kAtOnce + lane_id() / kLanes;
    room.weights[warp][from + key][which % kPairs] = dots[0] * score_scale(key);
  }
  __device__ float score_scale(int key) const { return a.kv.scale * kLog2E * scale_of(key); }

  /// The scores once more of the tile's sinks, with the queries that are rotated for them.
  __device__ void score_sinks(int from) {
    __syncwarp();
    MOESTRO_NO_UNROLL
    for (int pair = 0; pair < pairs(); ++pair) {
      float other[8];
      load_query(a.sink_q, pair, other);
      const int sunk = sight(pair).sinks;
      MOESTRO_NO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; ++i) {
        const int key = i * kAtOnce + lane_id() / kLanes;
        float k[8], dot = 0.0f;
        load_row<Width::kAny>(key, k);
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e) dot = multiply_add(other[e], k[e], dot);
        dot = warp_sum<kLanes>(dot);
        if (lane_id() % kLanes == 0 && warp_position(at.part) + from + key < sunk)
          room.weights[warp][from + key][pair] = dot * score_scale(key);
      }
    }
  }

  /// dots[0]: the whole of the dot product that is returned; -1 in lanes that need not write it. The lanes are added in
  /// one order however many dots there are.
  __device__ static int sum_dots(float (&dots)[kBatch * kPairs]) {
    constexpr int kCount = kBatch * kPairs, kSame = kLanes / kCount;
    reduce_scatter<kCount, 1, kLanes / 2>(dots);
    if constexpr (kSame > 1) dots[0] = warp_sum<kSame>(dots[0]);
    return lane_id() % kSame == 0 ? lane_id() % kLanes / kSame : -1;
  }

  /// Turns the warp's scores into weights, a lane for each key. `whole`: every pair sees every key. Pairs that the unit
  /// lacks are computed with, and not written.
  __device__ void weigh(bool whole) {
    float(&scores)[kPairs] = room.weights[warp][lane_id()];
    uint32_t seen = ~0u;  // bits of pairs
    if (!whole) {
      seen = 0;
      MOESTRO_NO_UNROLL
      for (int pair = 0; pair < pairs(); ++pair)
        if (sight(pair).sees(warp_position(at.part) + lane_id())) seen |= 1u << pair;
    }
    float tops[kPairs], sums[kPairs];
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) tops[pair] = (seen >> pair & 1u) != 0 ? scores[pair] : -INFINITY;
    warp_max_each(tops);
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      const bool sees = (seen >> pair & 1u) != 0;
      const float weight = sees ? exp2f(scores[pair] - tops[pair]) : -1.0f;
      sums[pair] = sees ? weight : 0.0f;
      scores[pair] = weight;
    }
    warp_sum_each(sums);
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair)
      if (lane_id() == 0) room.part[warp][pair] = {tops[pair], sums[pair]};
  }

  /// `whole`: as in weigh.
  __device__ void add_tile(int from, bool whole, float (&sums)[kPairs * 8]) const {
    if (whole && a.kv.head_dim == kDims) {
      MOESTRO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; ++i)
        add_keys<Width::kFull, true>(from, i * kAtOnce + lane_id() / kLanes, sums);
    } else if (whole && a.kv.head_dim % 8 == 0) {
      MOESTRO_UNROLL_BY(4)
      for (int i = 0; i < kTileKeys / kAtOnce; ++i)
        add_keys<Width::kEights, true>(from, i * kAtOnce + lane_id() / kLanes, sums);
    } else {
      MOESTRO_NO_UNROLL
      for (int i = 0; i < kTileKeys / kAtOnce; ++i)
        add_keys<Width::kAny, false>(from, i * kAtOnce + lane_id() / kLanes, sums);
    }
  }
  template <Width kWidth, bool kWhole>
  __device__ void add_keys(int from, int key, float (&sums)[kPairs * 8]) const {
    const float(&weights)[kPairs] = room.weights[warp][from + key];
    float v[8];
    load_row<kWidth>(key, v);
    const float scale = scale_of(key);
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      const float weight = weights[pair];
      if (!kWhole && weight < 0.0f) continue;
      MOESTRO_UNROLL
      for (int e = 0; e < 8; ++e)
        sums[pair * 8 + e] = multiply_add(kScaled ? weight * scale : weight, v[e], sums[pair * 8 + e]);
    }
  }

  /// Leaves the warp's weighted values in room.values.
  __device__ void keep_values(float (&sums)[kPairs * 8]) {
    int first_kept = 0;
    reduce_scatter<kPairs * 8, kHeld, kWarp / 2>(sums);
    if constexpr (kAtOnce >= 2) first_kept += lane_id() / 16 * (kPairs * 4);
    if constexpr (kAtOnce >= 4) first_kept += lane_id() / 8 % 2 * (kPairs * 2);
    MOESTRO_UNROLL
    for (int i = 0; i < kHeld; i += 4) {
      const int at_value = first_kept + i;
      float* to = &room.values[warp][at_value / 8][element() + at_value % 8];
      if constexpr (kHeld % 4 == 0) {
        Bytes16 four;
        MOESTRO_UNROLL
        for (int e = 0; e < 4; ++e) four.words[e] = float_to_bits(sums[i + e]);
        store_as(to, four);
      } else {
        MOESTRO_UNROLL
        for (int e = 0; e < at_most(4, kHeld); ++e) to[e] = sums[i + e];
      }
    }
  }

  /// The warp's share of a part: first all its keys, then all its values.
  __device__ void compute_part() {
    const int p = warp_position(at.part);
    const bool whole = p >= last.begin && p + kWarpKeys - 1 <= first.position;
    const uint32_t seen = seen_tiles(first, last, p);
    float sums[kPairs * 8] = {};
    MOESTRO_NO_UNROLL
    for (int tile = 0; tile < 2 * kTiles; ++tile) {
      next_tile();
      const int from = tile % kTiles * kTileKeys;
      const bool seen_tile = (seen >> (tile % kTiles) & 1u) != 0;
      if (tile < kTiles) {
        if (seen_tile) score_tile(from);
        if (a.sink_q && p + from < last.sinks) score_sinks(from);
        if (tile < kTiles - 1) continue;
        if (seen == 0) {
          if (lane_id() < kPairs) room.part[warp][lane_id()] = {};
          continue;
        }
        __syncwarp();
        weigh(whole);  // the others see it after next_tile()
      } else if (seen_tile) {
        add_tile(from, whole, sums);
      }
    }
    keep_values(sums);
  }

  // --- results ---

  __device__ static int owned_pair() { return static_cast<int>(threadIdx.x) * kOwned / kDims; }
  __device__ static int owned_element() { return static_cast<int>(threadIdx.x) * kOwned % kDims; }
  __device__ bool owns() const {
    return static_cast<int>(threadIdx.x) * kOwned < kPairs * kDims && owned_pair() < pairs();
  }

  /// Puts the warps' results together.
  __device__ Softmax part_result(float (&values)[kOwned]) const {
    Softmax all;
    MOESTRO_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) all.top = fmaxf(all.top, room.part[w][owned_pair()].top);
    MOESTRO_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) {
      const Softmax of_warp = room.part[w][owned_pair()];
      const float factor = of_warp.sum == 0.0f ? 0.0f : exp2f(of_warp.top - all.top);
      all.sum = multiply_add(of_warp.sum, factor, all.sum);
      const float* from = &room.values[w][owned_pair()][owned_element()];
      MOESTRO_UNROLL
      for (int i = 0; i < kOwned; ++i) values[i] = multiply_add(from[i], factor, values[i]);
    }
    return all;
  }

  __device__ void write_values(float* to, const float (&values)[kOwned]) const {
    const int64_t count = a.kv.head_dim - owned_element();
    if (kOwned % 4 == 0 && a.kv.head_dim % 4 == 0) {
      MOESTRO_UNROLL
      for (int i = 0; i + 3 < kOwned; i += 4) {
        if (i >= count) return;
        Bytes16 four;
        MOESTRO_UNROLL
        for (int e = 0; e < 4; ++e) four.words[e] = float_to_bits(values[i + e]);
        store_as(to + owned_element() + i, four);
      }
      return;
    }
    MOESTRO_UNROLL
    for (int i = 0; i < kOwned; ++i)
      if (i < count) to[owned_element() + i] = values[i];
  }

  /// Tasks [begin, end), all threads of the block together.
  __device__ void run(int begin, int end) {
    begin_ahead(begin, end);
    MOESTRO_NO_UNROLL
    for (int i = 0; i < kRing - 1; ++i) copy_next(room.ring[warp][i]);
    Softmax seen;
    float total[kOwned] = {};
    for (int task = begin; task < end; ++task) {
      if (task == begin || at.index == 0) enter();
      compute_part();
      __syncthreads();
      if (owns()) {
        float values[kOwned] = {};
        const Softmax part = part_result(values);
        if (!a.partial) {
          fold(seen, total, part, values);
        } else {
          float* to = partial_of(a, own_row, at.part);
          if (owned_element() == 0) {
            to[0] = part.top;
            to[1] = part.sum;
          }
          write_values(to + MOESTRO_CUDA_PARTIAL_HEAD, values);
        }
      }
      if (task + 1 < end) list.advance(at);
      __syncthreads();
    }
    wait_copies<0>();
    if (a.partial || begin >= end || !owns()) return;
    fold_logit(a, own_row, seen, total);
    MOESTRO_UNROLL
    for (int i = 0; i < kOwned; ++i) total[i] /= seen.sum;
    write_values(a.out + own_row * a.kv.head_dim, total);
  }
};

}  // namespace moestro::kernels::cuda
