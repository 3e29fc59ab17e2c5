#pragma once
// The work of a block of an experts kernel, for few and for many tokens.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {

/// The expert of blockIdx.y and its rows of `sorted`; blob is null if there is nothing to compute.
struct ExpertWork {
  const char* blob = nullptr;
  int32_t begin = 0, end = 0;
};

__device__ inline ExpertWork expert_work(const MoestroCudaExperts& a) {
  const int32_t expert = a.active[blockIdx.y];
  if (expert < 0) return {};
  ExpertWork w;
  w.blob = reinterpret_cast<const char*>(a.slots[expert]);
  w.begin = a.offsets[expert];
  w.end = a.offsets[expert + 1];
  return w;
}

__device__ inline const MoestroCudaTile& tile_at(const MoestroCudaExpertLayout& layout, int64_t tile) {
  return tile == layout.tiles - 1 ? layout.last : layout.full;
}

/// Row `index` of a part of a tile.
template <typename W>
__device__ WeightRow row_in(const char* tile, int64_t values, int64_t parameters, int64_t index, int64_t cols) {
  return {tile + values + index * W::row_bytes(cols),
          reinterpret_cast<const uint16_t*>(tile + parameters) + index * W::row_parameters(cols), cols};
}

/// The row of `out` of a routed row.
__device__ inline float* out_row(const MoestroCudaExperts& a, const MoestroCudaRoutedRow& to) {
  return a.out + (static_cast<int64_t>(to.token) * a.top_k + to.rank) * a.layout.hidden;
}

}  // namespace moestro::kernels::cuda
