#pragma once
// Routes by expert, stably: each warp of a block has a run of neighbouring routes and counts those of every expert in
// it. What comes before a route is then a sum of counts, whichever warp runs when.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

/// Neighbouring routes that a block sorts.
struct RouteRun {
  int64_t first, end;
};

/// Shared memory of a block that sorts.
struct RouteRoom {
  uint32_t* counts;  ///< [warps, experts]; later of each expert the routes of lower warps
  uint32_t* bases;   ///< [experts]: how many routes of it there are; later the place of the first
  uint64_t* sums;    ///< [warps]
};

__host__ __device__ inline uint64_t route_room_bytes(int64_t experts, int64_t warps) {
  return static_cast<uint64_t>((warps + 1) * experts * 4 + experts % 2 * 4 + warps * 8 + 8);
}
__device__ inline RouteRoom route_room(char* shared, int64_t experts) {
  const int64_t warps = blockDim.x / kWarp, words = (warps + 1) * experts;
  auto* counts = reinterpret_cast<uint32_t*>(shared);
  return {counts, counts + warps * experts, reinterpret_cast<uint64_t*>(counts + words + words % 2)};
}

/// Calls visit(route, its expert, how many lower lanes have a route of that expert, whether this is the first of them,
/// how many have one) for this warp's routes. All lanes call it, also those without a route: their expert is -1.
template <typename Visit>
__device__ void each_route(const MoestroCudaSortRoutes& a, RouteRun run, Visit visit) {
  const int64_t warps = blockDim.x / kWarp;
  const int64_t share = divided_up(divided_up(run.end - run.first, warps), kWarp) * kWarp;
  const int64_t first = run.first + warp_id() * share, end = at_most(run.end, first + share);
  int bits = 0;
  while ((int64_t{1} << bits) < a.experts) ++bits;
  for (int64_t i = first; i < end; i += kWarp) {
    const int64_t route = i + lane_id();
    const bool is = route < end && !(a.left_out && a.left_out[route / a.top_k] != 0);
    const int32_t expert = is ? load_fresh(a.ids + route) : -1;
    uint32_t same = __ballot_sync(kWholeWarp, is);
    for (int b = 0; b < bits; ++b) {
      const bool set = (expert >> b & 1) != 0;
      const uint32_t votes = __ballot_sync(kWholeWarp, set);
      same &= set ? votes : ~votes;
    }
    const auto before = static_cast<uint32_t>(__popc(same & ((1u << lane_id()) - 1u)));
    visit(route, expert, before, before == 0, static_cast<uint32_t>(__popc(same)));
    __syncwarp();
  }
}

/// Of each expert the run's routes of each warp.
__device__ inline void count_routes(const MoestroCudaSortRoutes& a, RouteRun run, const RouteRoom& room) {
  for (int64_t i = threadIdx.x; i < blockDim.x / kWarp * a.experts; i += blockDim.x) room.counts[i] = 0;
  __syncthreads();
  uint32_t* own = room.counts + warp_id() * a.experts;
  each_route(a, run, [&](int64_t, int32_t expert, uint32_t, bool is_first, uint32_t same) {
    if (expert >= 0 && is_first) own[expert] += same;
  });
  __syncthreads();
}

/// Of each expert the counts of lower warps in place of each warp's own, and total(expert, the run's routes of it) as
/// its base. total() may add to the counts.
template <typename Total>
__device__ void sum_warps(const MoestroCudaSortRoutes& a, const RouteRoom& room, Total total) {
  for (int64_t e = threadIdx.x; e < a.experts; e += blockDim.x) {
    uint32_t before = 0;
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
      uint32_t& count = room.counts[w * a.experts + e];
      const uint32_t own = count;
      count = before;
      before += own;
    }
    room.bases[e] = total(e, before);
  }
  __syncthreads();
}

/// The sum over lower threads.
__device__ inline uint64_t sum_before(uint64_t value, uint64_t* sums) {
  uint64_t upto = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint64_t lower = __shfl_sync(kWholeWarp, upto, (lane_id() - step) & (kWarp - 1));
    if (lane_id() >= step) upto += lower;
  }
  if (lane_id() == kWarp - 1) sums[warp_id()] = upto;
  __syncthreads();
  uint64_t before = upto - value;
  for (int w = 0; w < warp_id(); ++w) before += sums[w];
  __syncthreads();
  return before;
}

/// From how many routes each expert has (bases) to where its first is. `writes`: and tells the others so.
__device__ inline void place_experts(const MoestroCudaSortRoutes& a, const RouteRoom& room, bool writes) {
  const int64_t each = divided_up(a.experts, blockDim.x), first = threadIdx.x * each,
                end = at_most(a.experts, first + each);
  uint64_t own = 0;  // routes, and experts that have some in the high half
  for (int64_t e = first; e < end; ++e) own += room.bases[e] + (static_cast<uint64_t>(room.bases[e] != 0) << 32);
  uint64_t at = sum_before(own, room.sums);
  for (int64_t e = first; e < end; ++e) {
    const uint32_t count = room.bases[e], place = static_cast<uint32_t>(at);
    room.bases[e] = place;
    if (writes) a.offsets[e] = static_cast<int32_t>(place);
    if (writes && count != 0) a.active[at >> 32] = static_cast<int32_t>(e);
    at += count + (static_cast<uint64_t>(count != 0) << 32);
    if (e + 1 < a.experts || !writes) continue;
    a.offsets[a.experts] = static_cast<int32_t>(static_cast<uint32_t>(at));
    for (int64_t i = static_cast<int64_t>(at >> 32); i < at_most(a.experts, a.n * a.top_k); ++i) a.active[i] = -1;
  }
  __syncthreads();
}

/// The run's rows, to where bases and counts say.
__device__ inline void place_routes(const MoestroCudaSortRoutes& a, RouteRun run, const RouteRoom& room) {
  uint32_t* own = room.counts + warp_id() * a.experts;
  each_route(a, run, [&](int64_t route, int32_t expert, uint32_t before, bool is_first, uint32_t same) {
    const uint32_t at = expert >= 0 ? room.bases[expert] + own[expert] + before : 0u;
    __syncwarp();
    if (expert < 0) return;
    a.sorted[at] = {static_cast<int32_t>(route / a.top_k), static_cast<int32_t>(route % a.top_k)};
    if (is_first) own[expert] += same;
  });
}

/// All routes by one block.
__device__ inline void order_routes(const MoestroCudaSortRoutes& a, const RouteRoom& room) {
  const RouteRun all{0, a.n * a.top_k};
  count_routes(a, all, room);
  sum_warps(a, room, [](int64_t, uint32_t count) { return count; });
  place_experts(a, room, true);
  place_routes(a, all, room);
}

}  // namespace moestro::kernels::cuda
