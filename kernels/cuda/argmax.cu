// The likeliest token of each row of logits: a block for each row.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/rank_key.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kWarps = kThreads / kWarp;

/// Shared memory.
struct Room {
  RankKey best[kWarps];
  uint32_t not_finite[kWarps];  ///< votes
};

__global__ void argmax_kernel(MoestroCudaArgmax a) {
  Room& room = *reinterpret_cast<Room*>(shared_memory());
  const float* logits = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  RankKey best = 0;
  bool finite = true;
  for (int64_t i = threadIdx.x; i < a.vocabulary; i += kThreads) {
    best = at_least(best, key_of(logits[i], i));
    finite = finite && isfinite(logits[i]);
  }
  best = warp_best(best);
  const uint32_t votes = __ballot_sync(kWholeWarp, !finite);
  if (lane_id() == 0) {
    room.best[warp_id()] = best;
    room.not_finite[warp_id()] = votes;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint32_t any = 0;
  for (int w = 0; w < kWarps; ++w) {
    best = at_least(best, room.best[w]);
    any |= room.not_finite[w];
  }
  a.ids[blockIdx.x] = any != 0 ? -1 : static_cast<int32_t>(id_of(best));
}

}  // namespace

MoestroCudaResult argmax(const MoestroCudaArgmax* a, MoestroCudaStream stream) {
  return launch(argmax_kernel, dim3(static_cast<unsigned>(a->n)), kThreads, sizeof(Room), stream, *a);
}

}  // namespace moestro::kernels::cuda
