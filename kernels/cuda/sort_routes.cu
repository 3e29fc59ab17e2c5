// Routes by expert: few by one block; many by several, of which each has a run of neighbouring routes. Two kernels
// then: the first counts each run's routes by expert.

#include "kernels/cuda/route_order.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kThreads = kWarps * kWarp;
constexpr int64_t kRunRoutes = 1024;  ///< of a block, at least

__device__ RouteRun run_of(const MoestroCudaSortRoutes& a) {
  const int64_t routes = a.n * a.top_k, share = divided_up(routes, gridDim.x), first = blockIdx.x * share;
  return {at_most(first, routes), at_most(first + share, routes)};
}

__global__ void order_kernel(MoestroCudaSortRoutes a) {
  after_predecessors();
  let_next_begin();
  order_routes(a, route_room(shared_memory(), a.experts));
}

__global__ void count_kernel(MoestroCudaSortRoutes a) {
  after_predecessors();
  let_next_begin();
  const RouteRoom room = route_room(shared_memory(), a.experts);
  count_routes(a, run_of(a), room);
  sum_warps(a, room, [&](int64_t e, uint32_t count) { return a.counts[blockIdx.x * a.experts + e] = count; });
}

__global__ void place_kernel(MoestroCudaSortRoutes a) {
  after_predecessors();
  let_next_begin();
  const RouteRoom room = route_room(shared_memory(), a.experts);
  count_routes(a, run_of(a), room);
  sum_warps(a, room, [&](int64_t e, uint32_t) {
    uint32_t all = 0, before = 0;
    MOESTRO_UNROLL_4
    for (unsigned b = 0; b < gridDim.x; ++b) {
      const uint32_t count = a.counts[b * a.experts + e];
      all += count;
      before += b < blockIdx.x ? count : 0u;
    }
    for (int w = 0; w < kWarps; ++w) room.counts[w * a.experts + e] += before;
    return all;
  });
  place_experts(a, room, blockIdx.x == 0);
  place_routes(a, run_of(a), room);
}

}  // namespace

MoestroCudaResult sort_routes(const MoestroCudaSortRoutes* a, MoestroCudaStream stream) {
  if (a->experts > MOESTRO_CUDA_EXPERTS_MAX) return MOESTRO_CUDA_REFUSED;
  const int64_t runs = a->counts ? divided_up(a->n * a->top_k, kRunRoutes) : 1;
  const dim3 blocks(static_cast<unsigned>(at_most<int64_t>(runs, MOESTRO_CUDA_ROUTE_RUNS)));
  const uint64_t room = route_room_bytes(a->experts, kWarps);
  if (blocks.x <= 1) return launch_early(order_kernel, dim3(1), dim3(kThreads), room, stream, *a);
  const MoestroCudaResult counted = launch_early(count_kernel, blocks, dim3(kThreads), room, stream, *a);
  return counted != 0 ? counted : launch_early(place_kernel, blocks, dim3(kThreads), room, stream, *a);
}

}  // namespace moestro::kernels::cuda
