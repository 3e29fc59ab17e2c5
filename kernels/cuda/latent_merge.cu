// Latent attention whose parts were computed in parallel: they are put together in order, by a warp for each pair and
// 128 numbers of its latent.

#include "kernels/cuda/latent.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp, kWide = 4 * kWarp;
/// Parts that are read before they are added up.
constexpr int kAtOnce = 8;

/// Four numbers from `from`, those that are before `count`.
__device__ void read_four(const float* from, int count, bool whole, float (&to)[4]) {
  if (whole) {
    const auto four = load_as<Bytes16>(from);
    MOESTRO_UNROLL
    for (int e = 0; e < 4; ++e) to[e] = bits_to_float(four.words[e]);
  } else {
    MOESTRO_UNROLL
    for (int e = 0; e < 4; ++e) to[e] = e < count ? from[e] : 0.0f;
  }
}

/// part_of(i): where part i is.
template <typename PartOf>
__device__ void merge(const MoestroCudaLatentAttention& a, int64_t pair, int count, const PartOf& part_of) {
  const int rank = static_cast<int>(a.latent.kv_rank), d = static_cast<int>(blockIdx.y) * kWide + lane_id() * 4;
  if (d >= rank) return;  // lanes exchange nothing
  Softmax seen;
  float values[4] = {};
  for (int base = 0; base < count; base += kAtOnce) {
    Softmax parts[kAtOnce];
    float read[kAtOnce][4];
    MOESTRO_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + i >= count) continue;
      const float* from = part_of(base + i);
      parts[i] = {from[0], from[1]};
      read_four(from + MOESTRO_CUDA_PARTIAL_HEAD + d, rank - d, rank % 4 == 0, read[i]);
    }
    MOESTRO_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (base + i < count) fold(seen, values, parts[i], read[i]);
  }
  float* to = a.attended + pair * rank + d;
  MOESTRO_UNROLL
  for (int e = 0; e < 4; ++e)
    if (d + e < rank) to[e] = values[e] / seen.sum;
}

__global__ void __launch_bounds__(kThreads) merge_parts_kernel(MoestroCudaLatentAttention a) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  if (pair >= a.query_count * a.latent.heads) return;
  const float* first = a.partial + pair * a.parts * latent_part_floats(a.latent.kv_rank);
  merge(a, pair, latent_query(a, static_cast<int>(pair)).position / kPart + 1,
        [&](int part) { return first + part * latent_part_floats(a.latent.kv_rank); });
}

/// Block x of a group, in turn with the other groups': the unit that it began and did not end.
__global__ void __launch_bounds__(kThreads) merge_tiles_kernel(MoestroCudaLatentAttention a, int blocks) {
  const LatentShares shares(a, blocks);
  const auto groups = static_cast<int>(a.groups);
  const int block = static_cast<int>(blockIdx.x) / groups, group = static_cast<int>(blockIdx.x) % groups;
  if (block + 1 >= shares.blocks) return;
  const int end = shares.first_of(block + 1), item = latent_item_of(a, end - 1),
            first_tile = a.units[item * groups].first_tile;
  const LatentSpan unit = latent_span(a, item * groups + group);
  const int unit_end = first_tile + unit.tiles();
  if (first_tile < shares.first_of(block) || unit_end == end) return;
  const int pair = static_cast<int>(blockIdx.z) * kWarps + warp_id();
  if (pair >= unit.pairs) return;
  merge(a, unit.first_pair + pair, shares.block_of(unit_end - 1) - block + 1, [&](int i) {
    return latent_partial(a, (block + i) * groups + group, i > 0, pair);
  });
}

unsigned widths(const MoestroCudaLatentAttention& a) {
  return static_cast<unsigned>(divided_up(a.latent.kv_rank, kWide));
}

}  // namespace

MoestroCudaResult merge_latent_parts(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const int64_t pairs = a.query_count * a.latent.heads;
  return launch(merge_parts_kernel, dim3(static_cast<unsigned>(divided_up(pairs, kWarps)), widths(a)), dim3(kThreads),
                0, stream, a);
}

MoestroCudaResult merge_latent_tiles(const MoestroCudaLatentAttention& a, int blocks, MoestroCudaStream stream) {
  const auto pairs = static_cast<unsigned>(divided_up(a.pairs_most, kWarps));
  return launch(merge_tiles_kernel, dim3(static_cast<unsigned>(blocks * a.groups), widths(a), pairs), dim3(kThreads),
                0, stream, a, blocks);
}

}  // namespace moestro::kernels::cuda
