// The experts of a layer on many tokens: grouped products on tensor cores. A block for each active expert, tile of its
// tokens and tile of rows; the number of an expert's tokens is known on the device alone, so blocks behind the last of
// them end at once.

#include "kernels/cuda/many_tokens.h"
#include "kernels/cuda/experts_work.h"
#include "kernels/cuda/product_tile.h"

namespace moestro::kernels::cuda {
namespace {

/// A tile's share of an expert's rows.
struct TokenTile {
  ExpertWork work;
  int64_t first, count;
};
__device__ TokenTile token_tile(const MoestroCudaExperts& a) {
  TokenTile t{expert_work(a), 0, 0};
  t.first = t.work.begin + static_cast<int64_t>(blockIdx.z) * kTileTokens;
  t.count = t.work.blob == nullptr ? 0 : at_most<int64_t>(kTileTokens, t.work.end - t.first);
  return t;
}

template <typename W>
struct GateUpSource {
  const MoestroCudaExperts& a;
  const TokenTile& tokens;
  int64_t first_row;

  __device__ int64_t depth() const { return a.layout.hidden; }
  __device__ const float* x(int token) const {
    return token < tokens.count ? a.x + a.sorted[tokens.first + token].token * a.layout.hidden : nullptr;
  }
  __device__ bool w(int matrix, int row, int64_t&, WeightRow& out) const {
    const int64_t f = first_row + row;
    if (f >= a.layout.ffn) return false;
    const int64_t tile = f / a.layout.tile_ffn;
    const MoestroCudaTile& at = tile_at(a.layout, tile);
    out = row_in<W>(tokens.work.blob + tile * a.layout.tile_bytes, matrix == 0 ? at.gate : at.up,
                    matrix == 0 ? at.gate_scales : at.up_scales, f % a.layout.tile_ffn, a.layout.hidden);
    return true;
  }
};

template <typename W>
struct DownSource {
  const MoestroCudaExperts& a;
  const TokenTile& tokens;
  int64_t first_row;

  __device__ int64_t depth() const { return a.layout.ffn; }
  __device__ const float* x(int token) const {
    return token < tokens.count ? a.activated + (tokens.first + token) * a.layout.ffn : nullptr;
  }
  /// A tile is whole pieces wide, unless it is the last.
  __device__ bool w(int, int row, int64_t& piece, WeightRow& out) const {
    const int64_t h = first_row + row, tile = piece * kTileDepth / a.layout.tile_ffn;
    if (h >= a.layout.hidden) return false;
    const MoestroCudaTile& at = tile_at(a.layout, tile);
    piece -= tile * a.layout.tile_ffn / kTileDepth;
    out = row_in<W>(tokens.work.blob + tile * a.layout.tile_bytes, at.down, at.down_scales, h, at.ffn);
    return true;
  }
};

template <typename W>
__global__ void __launch_bounds__(kTileThreads) gate_up_many_kernel(MoestroCudaExperts a) {
  const TokenTile tokens = token_tile(a);
  if (tokens.count <= 0) return;
  const GateUpSource<W> source{a, tokens, static_cast<int64_t>(blockIdx.x) * kTileRows};
  ProductTile<W, 2, GateUpSource<W>> tile{source, *reinterpret_cast<ProductRoom<2>*>(shared_memory()), {}, {}, {}};
  tile.run();
  tile.each_sum([&](int token, int row, float gate, float up) {
    if (token < tokens.count && source.first_row + row < a.layout.ffn)
      a.activated[(tokens.first + token) * a.layout.ffn + source.first_row + row] = activated(gate, up);
  });
}

template <typename W>
__global__ void __launch_bounds__(kTileThreads) down_many_kernel(MoestroCudaExperts a) {
  const TokenTile tokens = token_tile(a);
  if (tokens.count <= 0) return;
  const DownSource<W> source{a, tokens, static_cast<int64_t>(blockIdx.x) * kTileRows};
  ProductTile<W, 1, DownSource<W>> tile{source, *reinterpret_cast<ProductRoom<1>*>(shared_memory()), {}, {}, {}};
  tile.run();
  tile.each_sum([&](int token, int row, float sum, float) {
    if (token < tokens.count && source.first_row + row < a.layout.hidden)
      out_row(a, a.sorted[tokens.first + token])[source.first_row + row] = sum;
  });
}

template <typename W>
MoestroCudaResult launch_many(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const int64_t token_tiles = divided_up(a.rounded_tokens, kTileTokens);
  if (token_tiles > 65535) return MOESTRO_CUDA_REFUSED;
  const auto grid_of = [&](int64_t rows) {
    return dim3(static_cast<unsigned>(divided_up(rows, kTileRows)), static_cast<unsigned>(a.active_max),
                static_cast<unsigned>(token_tiles));
  };
  const MoestroCudaResult result =
      launch(gate_up_many_kernel<W>, grid_of(a.layout.ffn), dim3(kTileThreads), sizeof(ProductRoom<2>), stream, a);
  return result != 0 ? result
                     : launch(down_many_kernel<W>, grid_of(a.layout.hidden), dim3(kTileThreads), sizeof(ProductRoom<1>),
                              stream, a);
}

}  // namespace

MoestroCudaResult experts_many(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  switch (a.layout.dtype) {
    case MOESTRO_CUDA_BF16: return launch_many<PlainWeights<BF16>>(a, stream);
    case MOESTRO_CUDA_INT8: return launch_many<Int8Weights>(a, stream);
    case MOESTRO_CUDA_INT4: return launch_many<Int4Weights>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda
