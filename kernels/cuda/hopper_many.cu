// Products of many tokens with bf16 weights on Hopper. Compiled for sm_90a alone: no other device has its instructions.

#include "kernels/cuda/hopper_many.h"

#include "kernels/cuda/hopper_map.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(kHopperTileTokens == kHopperTokens);

/// Tokens are gathered by copies, weights come by boxes. Large tiles read least; small ones are for products that have
/// few tiles.
using LargeTiles = HopperForm<256, 4, Boxes::kWeights, false>;
using SmallTiles = HopperForm<128, 6, Boxes::kWeights, false>;

/// Multiprocessors of the device; 0: it is not a Hopper.
#if defined(__CUDACC__)
int hopper_multiprocessors() {
  int device = 0, major = 0, minor = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return major == 9 && minor == 0 ? count : 0;
}
#else
int hopper_multiprocessors() { return emulated::hopper_multiprocessors(); }
#endif

bool suits(const MoestroCudaExpertLayout& l) {
  return l.hidden % kBoxRows == 0 && l.ffn % kBoxRows == 0 && l.tile_ffn % kBoxRows == 0 && l.last.ffn == l.full.ffn;
}

/// Units of work of kRows rows of weights, and the time of a wave of them in that of a large tile: a small one has half
/// of its products, but not of its bytes.
struct Cut {
  int64_t units;
  double time_of_wave;
};
double time_of(const Cut& cut, int blocks) {
  return static_cast<double>(divided_up(cut.units, blocks)) * cut.time_of_wave;
}

}  // namespace

MoestroCudaResult experts_hopper(const MoestroCudaExperts& a, int64_t tiles_max, MoestroCudaStream stream) {
  const int blocks = hopper_multiprocessors();
  const int64_t row_blocks = at_least(divided_up(a.layout.ffn, LargeTiles::kRows / 2), divided_up(a.layout.hidden, LargeTiles::kRows));
  if (blocks == 0 || !suits(a.layout) || tiles_max * row_blocks > INT32_MAX) return MOESTRO_CUDA_REFUSED;
  HopperExperts h{};
  h.a = a;
  h.tiles_max = static_cast<int32_t>(tiles_max);
  TensorMap down_weights{};
  MoestroCudaResult result = make_map(a.layout.hidden * 2, h.weights);
  if (result == 0) result = make_map(a.layout.tile_ffn * 2, down_weights);
  if (result != 0) return result;
  result = launch_hopper<LargeTiles, GateUpRows<LargeTiles::kRows>>(h, blocks, stream);
  if (result != 0) return result;
  h.weights = down_weights;
  return launch_hopper<LargeTiles, DownRows<LargeTiles::kRows>>(h, blocks, stream);
}

MoestroCudaResult matmul_hopper(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const int blocks = hopper_multiprocessors();
  const int64_t token_tiles = divided_up(a.n, kHopperTokens);
  const Cut large{token_tiles * divided_up(a.rows, LargeTiles::kRows), 1.0},
      small{token_tiles * divided_up(a.rows, SmallTiles::kRows), 0.6};
  // With less than half of the device busy, the other kernels cut the columns too.
  if (blocks == 0 || a.dtype != MOESTRO_CUDA_BF16 || a.n <= kHopperTokens / 2 || a.rows % kBoxRows != 0 ||
      a.cols % kHopperDepth != 0 || reinterpret_cast<uint64_t>(a.weight) % 16 != 0 || small.units > INT32_MAX ||
      2 * small.units < blocks)
    return MOESTRO_CUDA_REFUSED;
  HopperMatmul h{};
  h.a = a;
  if (const MoestroCudaResult result = make_map(a.cols * 2, h.weights); result != 0) return result;
  return time_of(large, blocks) <= time_of(small, blocks)
             ? launch_hopper<LargeTiles, DenseRows<LargeTiles::kRows>>(h, blocks, stream)
             : launch_hopper<SmallTiles, DenseRows<SmallTiles::kRows>>(h, blocks, stream);
}

}  // namespace moestro::kernels::cuda
