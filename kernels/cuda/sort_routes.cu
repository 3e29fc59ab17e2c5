// Routes by expert. A block for each expert reads all routes twice: to count those of lower experts and its own, and to
// write its own where they belong. The order within an expert is that of the routes, so nothing depends on which block
// runs when.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// Shared memory.
struct Room {
  uint32_t named[MOESTRO_CUDA_EXPERTS_MAX / 32];  ///< a bit for each expert that has a row
  uint32_t lower, own;
  uint32_t of_warp[kWarps];
};

__device__ bool has_row(const MoestroCudaSortRoutes& a, int64_t route) {
  return !a.left_out || a.left_out[route / a.top_k] == 0;
}

__device__ void count(const MoestroCudaSortRoutes& a, int32_t expert, Room& room) {
  for (unsigned i = threadIdx.x; i < sizeof(Room) / 4; i += kThreads) reinterpret_cast<uint32_t*>(&room)[i] = 0;
  __syncthreads();
  uint32_t lower = 0, own = 0;
  for (int64_t i = threadIdx.x; i < a.n * a.top_k; i += kThreads) {
    if (!has_row(a, i)) continue;
    const int32_t id = a.ids[i];
    lower += id < expert;
    own += id == expert;
    atomicOr(&room.named[id / 32], 1u << (id % 32));
  }
  if (lower != 0) atomicAdd(&room.lower, lower);
  if (own != 0) atomicAdd(&room.own, own);
  __syncthreads();
}

/// Its rows, a block's width of routes after another.
__device__ void write_rows(const MoestroCudaSortRoutes& a, int32_t expert, Room& room) {
  uint32_t base = room.lower;
  for (int64_t first = 0; first < a.n * a.top_k; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    const bool mine = i < a.n * a.top_k && has_row(a, i) && a.ids[i] == expert;
    const uint32_t votes = __ballot_sync(kWholeWarp, mine);
    if (lane_id() == 0) room.of_warp[warp_id()] = static_cast<uint32_t>(__popc(votes));
    __syncthreads();
    uint32_t before = 0, all = 0;
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp_id() ? room.of_warp[w] : 0u;
      all += room.of_warp[w];
    }
    if (mine) {
      const uint32_t at = base + before + static_cast<uint32_t>(__popc(votes & ((1u << lane_id()) - 1u)));
      a.sorted[at] = {static_cast<int32_t>(i / a.top_k), static_cast<int32_t>(i % a.top_k)};
    }
    base += all;
    __syncthreads();
  }
}

__global__ void sort_routes_kernel(MoestroCudaSortRoutes a) {
  Room& room = *reinterpret_cast<Room*>(shared_memory());
  const auto expert = static_cast<int32_t>(blockIdx.x);
  count(a, expert, room);
  if (threadIdx.x == 0) {
    a.offsets[expert] = static_cast<int32_t>(room.lower);
    if (expert == a.experts - 1) a.offsets[expert + 1] = static_cast<int32_t>(room.lower + room.own);
    int before = __popc(room.named[expert / 32] & ((1u << (expert % 32)) - 1u)), all = 0;
    for (int word = 0; word < MOESTRO_CUDA_EXPERTS_MAX / 32; ++word) {
      before += word < expert / 32 ? __popc(room.named[word]) : 0;
      all += __popc(room.named[word]);
    }
    if (room.own != 0) a.active[before] = expert;
    for (int64_t i = all; expert == 0 && i < at_most(a.experts, a.n * a.top_k); ++i) a.active[i] = -1;
  }
  write_rows(a, expert, room);
}

}  // namespace

MoestroCudaResult sort_routes(const MoestroCudaSortRoutes* a, MoestroCudaStream stream) {
  if (a->experts > MOESTRO_CUDA_EXPERTS_MAX) return MOESTRO_CUDA_REFUSED;
  return launch(sort_routes_kernel, dim3(static_cast<unsigned>(a->experts)), kThreads, sizeof(Room), stream, *a);
}

}  // namespace moestro::kernels::cuda
