#pragma once
// What hopper_kernel computes: gate and up with the activation, down, and dense products. Rows and columns are
// multiples of 64, and so are the tiles of experts.

#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/hopper_product.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

/// Of grouped products. a.rounded_x has the rows of `sorted`, in that order.
struct HopperExperts {
  MoestroCudaExperts a;
  int32_t tiles_max;  ///< entries of a.token_tiles
  TensorMap tokens, weights;
};

struct GroupedTask {
  using Arguments = HopperExperts;
  const Arguments& a;

  __device__ const TensorMap& token_map() const { return a.tokens; }
  __device__ const TensorMap& weight_map() const { return a.weights; }
  /// All tiles of a run are visited before the next rows of the weights: the run's tokens stay in L2.
  __device__ bool find_unit(int index, int row_blocks, HopperUnit& unit, const char*& blob) const {
    if (index / row_blocks >= a.tiles_max) return false;
    const MoestroCudaTokenTile run = a.a.token_tiles[index / row_blocks];
    if (run.blob == 0) return false;
    unit.tile = index / row_blocks;
    const int rest = index - run.first * row_blocks;
    blob = reinterpret_cast<const char*>(run.blob);
    unit.row_block = rest / run.tiles;
    unit.first = run.begin + rest % run.tiles * kHopperTokens;
    unit.count = at_most(kHopperTokens, run.end - unit.first);
    return true;
  }
  /// The unit's expert; null if nobody asks, for there are no biases.
  __device__ const char* blob_of(const HopperUnit& unit) const {
    return has_biases(a.a) ? reinterpret_cast<const char*>(a.a.token_tiles[unit.tile].blob) : nullptr;
  }
};

/// rounded_activated = activated(gate x, up x): the first half of a unit's rows is of gate, the second of up.
template <int kRows>
struct GateUpTask : GroupedTask {
  static constexpr int kHalf = kRows / 2;
  __device__ explicit GateUpTask(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int pieces() const { return static_cast<int>(a.a.layout.hidden) / kHopperDepth; }
  __device__ bool find(int index, HopperUnit& unit, const char*& blob) const {
    return find_unit(index, static_cast<int>(divided_up(a.a.layout.ffn, kHalf)), unit, blob);
  }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* blob) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob, {}};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes / 2; ++i) {
      const int64_t f = static_cast<int64_t>(unit.row_block) * kHalf + i * kBoxRows, tile = f / layout.tile_ffn;
      const MoestroCudaTile& at = tile_at(layout, tile);
      const int64_t row = tile * layout.tile_bytes + f % layout.tile_ffn * layout.hidden * 2;
      boxes.offset[i] = f < layout.ffn ? row + at.gate : -1;
      boxes.offset[kBoxes / 2 + i] = f < layout.ffn ? row + at.up : -1;
    }
    return boxes;
  }
  template <int kBoxes>
  __device__ void next_piece(int, WeightBoxes<kBoxes>& boxes) const {
    boxes.origin += kPieceBytes;
  }
  /// Four lanes have a row's columns in turns of two; they exchange them, and each stores eight in turn.
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    const int64_t ffn = a.a.layout.ffn;
    const int64_t block = static_cast<int64_t>(unit.row_block) * kHalf, first = block + lane_id() % 4 * 8,
                  row = block + lane_id() % 4 * 2;  // of this lane's sums
    uint16_t* to = a.a.rounded_activated + (unit.first + token) * ffn + first;
    const char* blob = blob_of(unit);
    MOESTRO_UNROLL
    for (int j = 0; j < kHalf / 8; j += 4) {
      Bytes16 eight;
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* gate = &sums[4 * (j + i) + 2 * h];
        const float* up = gate + kSums / 2;
        const int64_t f = at_most(row + (j + i) * 8, ffn - 2);  // behind the last row nothing is stored
        eight.words[i] = bf16_pair(activated<FastSigmoid>(a.a, blob, f, gate[0], up[0]),
                                   activated<FastSigmoid>(a.a, blob, f + 1, gate[1], up[1]));
      }
      transpose_in_quad(eight.words);
      if (token < unit.count && first + 8 * j < ffn) store_as(to + 8 * j, eight);
    }
  }
};

/// out = down rounded_activated.
template <int kRows>
struct DownTask : GroupedTask {
  __device__ explicit DownTask(const Arguments& arguments) : GroupedTask{arguments} {}

  __device__ int pieces() const { return static_cast<int>(a.a.layout.ffn) / kHopperDepth; }
  __device__ bool find(int index, HopperUnit& unit, const char*& blob) const {
    return find_unit(index, static_cast<int>(divided_up(a.a.layout.hidden, kRows)), unit, blob);
  }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* blob) const {
    const MoestroCudaExpertLayout& layout = a.a.layout;
    WeightBoxes<kBoxes> boxes{blob + layout.full.down, {}};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t h = static_cast<int64_t>(unit.row_block) * kRows + i * kBoxRows;
      boxes.offset[i] = h < layout.hidden ? h * layout.tile_ffn * 2 : -1;
    }
    return boxes;
  }
  /// Tiles are equally wide.
  template <int kBoxes>
  __device__ void next_piece(int s, WeightBoxes<kBoxes>& boxes) const {
    const int of_tile = static_cast<int>(a.a.layout.tile_ffn) / kHopperDepth;
    boxes.origin += (s + 1) % of_tile != 0 ? kPieceBytes : a.a.layout.tile_bytes - (of_tile - 1) * kPieceBytes;
  }
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    if (token >= unit.count) return;
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + lane_id() % 4 * 2;
    float* to = out_row(a.a, a.a.sorted[unit.first + token]) + first;
    const char* blob = blob_of(unit);
    MOESTRO_UNROLL
    for (int j = 0; j < kRows / 8; ++j) {
      if (first + 8 * j >= a.a.layout.hidden) break;
      const int at = 4 * j + 2 * h;
      const float two[] = {with_down_bias(a.a, blob, first + 8 * j, sums[at]),
                           with_down_bias(a.a, blob, first + 8 * j + 1, sums[at + 1])};
      store_as(to + 8 * j, Bytes8{{float_to_bits(two[0]), float_to_bits(two[1])}});
    }
  }
};

/// Of y = x w^T + bias.
struct HopperMatmul {
  MoestroCudaMatmul a;
  TensorMap tokens, weights;
};

template <int kRows>
struct DenseTask {
  using Arguments = HopperMatmul;
  const Arguments& a;

  __device__ const TensorMap& token_map() const { return a.tokens; }
  __device__ const TensorMap& weight_map() const { return a.weights; }
  __device__ int pieces() const { return static_cast<int>(a.a.cols) / kHopperDepth; }
  /// Tiles of tokens are visited in runs, as those of experts.
  __device__ bool find(int index, HopperUnit& unit, const char*& weight) const {
    const int tiles = static_cast<int>(divided_up(a.a.n, kHopperTokens)),
              row_blocks = static_cast<int>(divided_up(a.a.rows, kRows));
    if (index >= tiles * row_blocks) return false;
    const int first = index / row_blocks / MOESTRO_CUDA_RUN_TILES * MOESTRO_CUDA_RUN_TILES;
    const int of_run = at_most(MOESTRO_CUDA_RUN_TILES, tiles - first), rest = index - first * row_blocks;
    weight = static_cast<const char*>(a.a.weight);
    unit.row_block = rest / of_run;
    unit.first = (first + rest % of_run) * kHopperTokens;
    unit.count = static_cast<int32_t>(at_most<int64_t>(kHopperTokens, a.a.n - unit.first));
    return true;
  }
  template <int kBoxes>
  __device__ WeightBoxes<kBoxes> weights(const HopperUnit& unit, const char* weight) const {
    WeightBoxes<kBoxes> boxes{weight, {}};
    MOESTRO_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      const int64_t r = static_cast<int64_t>(unit.row_block) * kRows + i * kBoxRows;
      boxes.offset[i] = r < a.a.rows ? r * a.a.cols * 2 : -1;
    }
    return boxes;
  }
  template <int kBoxes>
  __device__ void next_piece(int, WeightBoxes<kBoxes>& boxes) const {
    boxes.origin += kPieceBytes;
  }
  template <int kSums>
  __device__ void put(const HopperUnit& unit, int token, int h, const float (&sums)[kSums]) const {
    if (token >= unit.count) return;
    const int64_t first = static_cast<int64_t>(unit.row_block) * kRows + lane_id() % 4 * 2;
    float* to = a.a.y + (unit.first + token) * a.a.rows + first;
    MOESTRO_UNROLL
    for (int j = 0; j < kRows / 8; ++j) {
      if (first + 8 * j >= a.a.rows) break;
      float two[2] = {sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]};
      if (a.a.bias != nullptr) two[0] += a.a.bias[first + 8 * j], two[1] += a.a.bias[first + 8 * j + 1];
      store_as(to + 8 * j, Bytes8{{float_to_bits(two[0]), float_to_bits(two[1])}});
    }
  }
};

}  // namespace moestro::kernels::cuda
