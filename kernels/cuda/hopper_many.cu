// Products of many tokens with bf16 weights on Hopper. Compiled for sm_90a alone: no other device has its instructions.

#include "kernels/cuda/hopper_many.h"
#include "kernels/cuda/hopper_map.h"
#include "kernels/cuda/hopper_tasks.h"
#include "kernels/cuda/rounded_rows.h"
#include "kernels/cuda/token_tiles.h"

namespace moestro::kernels::cuda {
namespace {

/// Large tiles read least; small ones are for products that have few tiles.
using LargeTiles = HopperForm<256, 4>;
using SmallTiles = HopperForm<128, 6>;

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
int hopper_multiprocessors() {
  return emulated::hopper_multiprocessors();
}
#endif

/// Threads of 8 columns each for one row.
constexpr unsigned kGatherThreads = 256;

/// The list of token tiles by block 0; by the others x as bf16 in the order of `sorted`, of which entries behind the
/// last route are undefined.
__global__ void __launch_bounds__(kGatherThreads) begin_hopper_kernel(MoestroCudaExperts a) {
  static_assert(kGatherThreads == kTileListThreads);
  if (blockIdx.x == 0) return list_token_tiles(a, kHopperTokens, reinterpret_cast<int32_t*>(shared_memory()));
  const int64_t hidden = a.layout.hidden, unit = static_cast<int64_t>(blockIdx.x - 1) * kGatherThreads + threadIdx.x;
  const auto of_row = static_cast<uint32_t>(hidden / 8);
  if (unit >= a.rows * of_row) return;
  const uint32_t row = static_cast<uint32_t>(unit) / of_row, column = static_cast<uint32_t>(unit) % of_row * 8;
  const int32_t token = a.sorted[row].token;
  if (token < 0 || token >= a.x_rows) return;
  float numbers[8];
  load8<F32>(a.x + token * hidden + column, numbers);
  Bytes16 eight;
  MOESTRO_UNROLL
  for (int i = 0; i < 4; ++i) eight.words[i] = bf16_pair(numbers[2 * i], numbers[2 * i + 1]);
  store_as(a.rounded_x + unit * 8, eight);
}

__global__ void __launch_bounds__(kRoundThreads) round_hopper_kernel(MoestroCudaMatmul a) {
  round_rows(a.x, a.n, a.cols, false, blockIdx.x, a.rounded_x);
}

bool is_aligned(const void* at) {
  return reinterpret_cast<uint64_t>(at) % 16 == 0;
}

/// Whole boxes, and tiles of one width: their pitch is that of the map.
bool suits(const MoestroCudaExperts& a) {
  const MoestroCudaExpertLayout& l = a.layout;
  return l.dtype == MOESTRO_CUDA_BF16 && l.hidden % kBoxRows == 0 && l.ffn % kBoxRows == 0 &&
         l.tile_ffn % kBoxRows == 0 && l.last.ffn == l.full.ffn && is_aligned(a.x);
}

/// The time of `units` tiles on as many blocks as there are multiprocessors, in that of a wave of large ones. A small
/// one has half of the products, but more than half of the bytes.
constexpr double kSmallWave = 0.65;
double time_of(int64_t units, int blocks, double wave) {
  return static_cast<double>(divided_up(units, blocks)) * wave;
}

}  // namespace

MoestroCudaResult experts_hopper(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const int blocks = hopper_multiprocessors();
  const int64_t tiles = token_tiles_max(a, kHopperTokens),
                gathering = divided_up(a.rows * a.layout.hidden / 8, kGatherThreads),
                row_blocks = at_least(divided_up(a.layout.ffn, LargeTiles::kRows / 2),
                                      divided_up(a.layout.hidden, LargeTiles::kRows));
  if (blocks == 0 || !suits(a) || tiles * row_blocks > INT32_MAX || (gathering + 1) * kGatherThreads > UINT32_MAX)
    return MOESTRO_CUDA_REFUSED;
  HopperExperts gate_up{a, static_cast<int32_t>(tiles), {}, {}}, down = gate_up;
  if (make_row_map(a.rounded_x, a.rows, a.layout.hidden, gate_up.tokens) != 0 ||
      make_address_map(a.layout.hidden * 2, gate_up.weights) != 0 ||
      make_row_map(a.rounded_activated, a.rows, a.layout.ffn, down.tokens) != 0 ||
      make_address_map(a.layout.tile_ffn * 2, down.weights) != 0)
    return MOESTRO_CUDA_REFUSED;
  MoestroCudaResult result = launch(begin_hopper_kernel, dim3(static_cast<unsigned>(gathering) + 1),
                                    dim3(kGatherThreads), kTileListThreads * sizeof(int32_t), stream, a);
  if (result == 0) result = launch_hopper<LargeTiles, GateUpTask<LargeTiles::kRows>>(gate_up, blocks, stream);
  if (result == 0) result = launch_hopper<LargeTiles, DownTask<LargeTiles::kRows>>(down, blocks, stream);
  return result;
}

MoestroCudaResult matmul_hopper(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const int blocks = hopper_multiprocessors();
  const int64_t token_tiles = divided_up(a.n, kHopperTokens), rounding = rounding_blocks(a.n, a.cols),
                large = token_tiles * divided_up(a.rows, LargeTiles::kRows),
                small = token_tiles * divided_up(a.rows, SmallTiles::kRows);
  // With less than half of the device busy, the other kernels are faster: they cut the columns too.
  if (blocks == 0 || a.dtype != MOESTRO_CUDA_BF16 || a.n <= kHopperTokens / 2 || a.rows % kBoxRows != 0 ||
      a.cols % kHopperDepth != 0 || !is_aligned(a.weight) || small > INT32_MAX || 2 * small < blocks ||
      rounding * kRoundThreads > UINT32_MAX)
    return MOESTRO_CUDA_REFUSED;
  HopperMatmul h{a, {}, {}};
  if (make_row_map(a.rounded_x, a.n, a.cols, h.tokens) != 0 || make_address_map(a.cols * 2, h.weights) != 0)
    return MOESTRO_CUDA_REFUSED;
  const MoestroCudaResult result =
      launch(round_hopper_kernel, dim3(static_cast<unsigned>(rounding)), dim3(kRoundThreads), 0, stream, a);
  if (result != 0) return result;
  return time_of(large, blocks, 1.0) <= time_of(small, blocks, kSmallWave)
             ? launch_hopper<LargeTiles, DenseTask<LargeTiles::kRows>>(h, blocks, stream)
             : launch_hopper<SmallTiles, DenseTask<SmallTiles::kRows>>(h, blocks, stream);
}

}  // namespace moestro::kernels::cuda
