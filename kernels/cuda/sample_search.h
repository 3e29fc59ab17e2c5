#pragma once
// A search among candidates in an order, by one block: the one at which their running count or weight reaches an
// amount. It is found by histograms of ever narrower parts of the order.

#include "kernels/cuda/sample_row.h"

namespace moestro::kernels::cuda::drawing {

/// Shared memory: counts and weights by bin. Bin 0 is the first in the order.
struct Bins {
  uint32_t counts[kBins], low[kBins], high[kBins];  ///< low, high: halves of a Fixed, as atomics of 64 bits are slow

  __device__ void clear() {
    for (unsigned i = threadIdx.x; i < kBins; i += kThreads) counts[i] = low[i] = high[i] = 0;
  }
  __device__ void count(unsigned bin) { atomicAdd(&counts[bin], 1u); }
  __device__ void add(unsigned bin, Fixed weight) {
    count(bin);
    const auto part = static_cast<uint32_t>(weight);
    const uint32_t before = atomicAdd(&low[bin], part);
    const uint32_t rest = static_cast<uint32_t>(weight >> 32) + (before + part < before ? 1u : 0u);
    if (rest != 0) atomicAdd(&high[bin], rest);
  }
  __device__ void set(unsigned bin, uint32_t n, Fixed weight) {
    counts[bin] = n;
    low[bin] = static_cast<uint32_t>(weight);
    high[bin] = static_cast<uint32_t>(weight >> 32);
  }
  __device__ Fixed weight(unsigned bin) const { return static_cast<Fixed>(high[bin]) << 32 | low[bin]; }
};

struct Sums {
  Fixed weight;
  uint32_t count;
  __device__ void add(const Sums& other) {
    weight += other.weight;
    count += other.count;
  }
};

/// A candidate, and what all up to it, itself included, are together.
struct Cut {
  RankKey key = 0;
  Fixed weight = 0;
};

/// What is looked for.
struct Target {
  bool by_count;
  Fixed amount;  ///< at least 1
  __device__ Fixed of(const Sums& sums) const { return by_count ? sums.count : sums.weight; }
  __device__ bool is_reached(const Sums& sums) const { return of(sums) >= amount; }
};

/// The bin in which a target is reached; kBins: none.
struct FoundBin {
  unsigned bin;
  Sums before, of_it;
};

/// Shared memory of a search.
struct SearchRoom {
  Bins bins;
  Sums of_warps[kWarps];
  FoundBin found;
  RankKey best[kWarps];
  uint32_t last_count;
  Fixed last_offsets[kWarp], last_weights[kWarp];
  RankKey last_keys[kWarp];
  Cut cut;
};

/// Of this thread's bins: what lies before them; and of all bins.
struct Prefix {
  Sums before, all;
};
constexpr unsigned kBinsOfThread = kBins / kThreads;

/// The bins are complete: a barrier has been passed.
__device__ inline Prefix prefix_of(SearchRoom& room) {
  Sums sums{0, 0};
  for (unsigned i = 0; i < kBinsOfThread; ++i) {
    const unsigned bin = threadIdx.x * kBinsOfThread + i;
    sums.add({room.bins.weight(bin), room.bins.counts[bin]});
  }
  const Sums own = sums;
  for (int step = 1; step < kWarp; step *= 2) {
    const Sums lower{__shfl_sync(kWholeWarp, sums.weight, lane_id() - step),
                     __shfl_sync(kWholeWarp, sums.count, lane_id() - step)};
    if (lane_id() >= step) sums.add(lower);
  }
  if (lane_id() == kWarp - 1) room.of_warps[warp_id()] = sums;
  __syncthreads();
  Prefix prefix{{sums.weight - own.weight, sums.count - own.count}, {0, 0}};
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp_id()) prefix.before.add(prefix.all);
    prefix.all.add(room.of_warps[w]);
  }
  return prefix;
}

__device__ inline FoundBin find_bin(SearchRoom& room, const Prefix& prefix, const Target& target) {
  if (threadIdx.x == 0) room.found = {kBins, prefix.all, {0, 0}};
  __syncthreads();
  Sums before = prefix.before;
  for (unsigned i = 0; i < kBinsOfThread; ++i) {
    const unsigned bin = threadIdx.x * kBinsOfThread + i;
    const Sums of_it{room.bins.weight(bin), room.bins.counts[bin]};
    Sums after = before;
    after.add(of_it);
    if (!target.is_reached(before) && target.is_reached(after)) room.found = {bin, before, of_it};
    before = after;
  }
  __syncthreads();
  return room.found;
}

/// Candidates: a list, or the logits of the row from `first` on.
struct Source {
  const RankKey* list;
  int64_t first, count;

  template <typename Visit>
  __device__ void each(const Row& row, Visit visit) const {
    constexpr int kBatch = 8;  // loads under way at once
    for (int64_t i = threadIdx.x; i < count; i += int64_t{kBatch} * kThreads) {
      RankKey keys[kBatch];
      MOESTRO_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const int64_t at = i + int64_t{j} * kThreads;
        keys[j] = at >= count ? 0 : list != nullptr ? list[at] : key_of(row.logits[first + at], first + at);
      }
      MOESTRO_UNROLL
      for (int j = 0; j < kBatch; ++j)
        if (keys[j] != 0) visit(keys[j]);
    }
  }
};

/// From the best candidate down.
struct ByRank {
  RankKey best;
  Row row;
  __device__ Fixed offset(RankKey key) const { return best - key; }
  __device__ Fixed weight(RankKey key) const { return fixed_of(row.weight_of(key)); }
};

/// Candidates that can be drawn, in the order of their ids: from the best one down to `least`, and not less than min_p
/// times as likely.
struct ById {
  int64_t first;
  Row row;
  RankKey least;
  float min_p;
  __device__ Fixed offset(RankKey key) const { return static_cast<Fixed>(id_of(key) - first); }
  __device__ Fixed weight(RankKey key) const {
    const float weight = row.weight_of(key);
    return key >= least && weight >= min_p ? fixed_of(weight) : 0;
  }
};

/// Of all the source's candidates; in every thread. A barrier ends it.
template <typename Order>
__device__ Fixed total_weight(const Row& row, const Source& source, const Order& order, SearchRoom& room) {
  Fixed sum = 0;
  source.each(row, [&](RankKey key) { sum += order.weight(key); });
  sum = warp_fold<kWarp>(sum, [](Fixed a, Fixed b) { return a + b; });
  if (lane_id() == 0) room.of_warps[warp_id()] = {sum, 0};
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += room.of_warps[w].weight;
  __syncthreads();
  return sum;
}

/// Bits that the offsets of all candidates fit in. A barrier ends it.
template <typename Order>
__device__ int offset_bits(const Row& row, const Source& source, const Order& order, SearchRoom& room) {
  RankKey furthest = 1;  // 0 would stand for a candidate that is not finite
  source.each(row, [&](RankKey key) { furthest = at_least(furthest, static_cast<RankKey>(order.offset(key))); });
  furthest = block_best(furthest, room.best);
  __syncthreads();
  int bits = 1;
  while (bits < 64 && furthest >> bits != 0) ++bits;
  return bits;
}

/// Whether an offset is one of the 2^bits from `low` on; makes it one from there.
__device__ inline bool is_within(Fixed& offset, Fixed low, int bits) {
  offset -= low;
  return bits == 64 || offset >> bits == 0;
}

/// The candidate of room.last_* at which the target is reached: onto room.cut. By one warp.
__device__ inline void find_last(SearchRoom& room, const Sums& before, const Target& target) {
  const auto i = static_cast<uint32_t>(lane_id());
  if (i >= room.last_count) return;
  Sums others = before;
  for (uint32_t j = 0; j < room.last_count; ++j)
    if (room.last_offsets[j] < room.last_offsets[i]) others.add({room.last_weights[j], 1});
  Sums all = others;
  all.add({room.last_weights[i], 1});
  if (!target.is_reached(others) && target.is_reached(all)) room.cut = {room.last_keys[i], all.weight};
}

/// The first candidate at which the target is reached, which all of them together reach. Offsets are below 2^bits.
template <typename Order>
__device__ Cut search(const Row& row, const Source& source, const Order& order, const Target& target, int bits,
                      SearchRoom& room) {
  Sums passed{0, 0};
  Fixed low = 0;
  for (bool is_last = false; !is_last;) {
    const int shift = at_least(bits - kBinBits, 0);
    room.bins.clear();
    if (threadIdx.x == 0) room.last_count = 0;
    __syncthreads();
    source.each(row, [&](RankKey key) {
      Fixed offset = order.offset(key);
      if (is_within(offset, low, bits)) room.bins.add(static_cast<unsigned>(offset >> shift), order.weight(key));
    });
    __syncthreads();
    const FoundBin found = find_bin(room, prefix_of(room), {target.by_count, target.amount - target.of(passed)});
    passed.add(found.before);
    low += static_cast<Fixed>(found.bin) << shift;
    bits = shift;
    is_last = found.of_it.count <= kWarp || bits == 0;
  }
  source.each(row, [&](RankKey key) {
    Fixed offset = order.offset(key);
    if (!is_within(offset, low, bits)) return;
    const uint32_t at = atomicAdd(&room.last_count, 1u);
    room.last_offsets[at] = offset;
    room.last_weights[at] = order.weight(key);
    room.last_keys[at] = key;
  });
  __syncthreads();
  if (warp_id() == 0) find_last(room, passed, target);
  __syncthreads();
  return room.cut;
}

}  // namespace moestro::kernels::cuda::drawing
