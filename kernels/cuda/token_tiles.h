#pragma once
// The tiles of tokens of a layer's experts (MoestroCudaTokenTile): how many tokens an expert has is known on the device
// alone, and a grid of as many tiles as there may be for each expert would mostly be empty.

#include "kernels/cuda/experts_work.h"

namespace moestro::kernels::cuda {

inline constexpr int kTileListThreads = 256;

/// The most tiles that there can be.
__host__ __device__ constexpr int64_t token_tiles_max(const MoestroCudaExperts& a, int tile_tokens) {
  return a.rows / tile_tokens + a.active_max;
}

/// Writes the tiles of one expert from entry `first` on.
__device__ inline void write_tiles(const MoestroCudaExperts& a, uint64_t blob, int32_t begin, int32_t end, int tokens,
                                   int32_t first) {
  constexpr int kRun = MOESTRO_CUDA_RUN_TILES;
  const auto tiles = static_cast<int32_t>(divided_up(end - begin, tokens));
  for (int32_t i = 0; i < tiles; ++i) {
    const int32_t run = i / kRun * kRun, run_begin = begin + run * tokens;
    const int32_t run_tiles = at_most(tiles - run, kRun);
    a.token_tiles[first + i] = {blob, run_begin, at_most(end, run_begin + run_tiles * tokens), first + run, run_tiles};
  }
}

/// One block of kTileListThreads; `room`: as many numbers of shared memory.
__device__ inline void list_token_tiles(const MoestroCudaExperts& a, int tokens, int32_t* room) {
  const auto thread = static_cast<int>(threadIdx.x);
  int32_t before = 0;
  for (int64_t first = 0; first < a.active_max; first += kTileListThreads) {
    const int32_t expert = first + thread < a.active_max ? a.active[first + thread] : -1;
    const uint64_t blob = expert < 0 ? 0 : a.slots[expert];
    const int32_t begin = blob == 0 ? 0 : a.offsets[expert], end = blob == 0 ? 0 : a.offsets[expert + 1];
    const auto tiles = static_cast<int32_t>(divided_up(end - begin, tokens));
    int32_t sum = tiles;  // of this thread and those before it
    for (int step = 1; step < kTileListThreads; step *= 2) {
      room[thread] = sum;
      __syncthreads();
      if (thread >= step) sum += room[thread - step];
      __syncthreads();
    }
    room[thread] = sum;
    __syncthreads();
    write_tiles(a, blob, begin, end, tokens, before + sum - tiles);
    before += room[kTileListThreads - 1];
    __syncthreads();
  }
  for (int64_t i = before + thread; i < token_tiles_max(a, tokens); i += kTileListThreads) a.token_tiles[i] = {};
}

/// The part of a block of a grid of token_tiles_max * row_tiles blocks: tiles of rows one after another, and for each
/// all tiles of tokens of a run, so that an expert's weights are read once and what they are multiplied with stays in
/// L2.
struct TokensByRows {
  const char* blob = nullptr;  ///< null: nothing to compute
  int32_t first = 0, count = 0;  ///< rows of `sorted`
  int32_t row_tile = 0;
};
__device__ inline TokensByRows tokens_by_rows(const MoestroCudaExperts& a, int tile_tokens, uint32_t row_tiles) {
  const MoestroCudaTokenTile tile = a.token_tiles[blockIdx.x / row_tiles];
  if (tile.blob == 0) return {};
  const uint32_t at = blockIdx.x - static_cast<uint32_t>(tile.first) * row_tiles,
                 tiles = static_cast<uint32_t>(tile.tiles);
  const int32_t first = tile.begin + static_cast<int32_t>(at % tiles) * tile_tokens;
  return {reinterpret_cast<const char*>(tile.blob), first, at_most(tile.end - first, tile_tokens),
          static_cast<int32_t>(at / tiles)};
}

}  // namespace moestro::kernels::cuda
