#pragma once
// The layout of an expert's weights, the same on disk, in the store's arena and in every kernel (docs/decisions/0002).
//
// An expert is y = down * (act(gate * x) .* (up * x)); gate, up: [ffn, hidden], down: [hidden, ffn]. Its blob is a run
// of TILES, each the part of all three matrices that belongs to one range of the ffn dimension:
//
//   blob   | tile 0 | tile 1 | ... | tile n-1 |            every tile but the last has `tile_ffn` columns of ffn
//   tile   | gate rows | up rows | down columns | gate scales | up scales | down scales | padding to 4 KiB |
//            [F, hidden]  [F, hidden]  [hidden, F]   parameters, where there are any; F = ffn columns of this tile
//
// Rows run along the reduction dimension (hidden for gate and up, ffn for down). Every part is aligned to 64 bytes,
// every tile to 4 KiB. Quantisation groups are kQuantGroup wide along the reduction dimension; the last one of a row
// may be short: gate/up scales are [F, ceil(hidden/64)], down scales [hidden, ceil(F/64)], of bf16 scales (int8) or of
// pairs of bf16, scale and offset (int4). int4: a row is ceil(columns/64) groups of 32 bytes. Of the columns c of a
// group, byte b holds c = b % 16 + 32 * (b / 16) in its low and c + 16 in its high half, so a vector of 16 bytes widens
// to adjacent columns. Columns past the row's end are 0. bf16-12bit: each of the three matrices has rows and, in place
// of scales, exponents as in common/bf16_in_12.h. Its tiles are as wide as those of bf16, so that sums have the same
// order. Blocks (common/formats/blocks.h): rows as in the checkpoint, without parameters; every tile but the last is a
// multiple of 256 columns of down wide, whatever the block, because kernels take so many at a time. A tile can be
// computed as soon as its bytes are there; a tensor-parallel rank takes whole tiles. For reading, a tile is cut into
// SLICES of at most 1 MiB, each with a checksum. A tile is one slice unless 64 columns of ffn (256 of blocks) exceed
// 1 MiB, or bf16-12bit pads narrow rows beyond it.
//
// An expert with biases (gate x + b, up x + b, down a + b) has them after its last tile, exact at every precision: a
// computation of some of the tiles adds the down bias in one place only.
//
//   biases | gate [ffn] | up [ffn] | down [hidden] | padding to 4 KiB |     f32
//
// An expert without a gate, y = down * act(up * x), has neither the gate's rows nor its scales and bias.

#include <cstdint>

#include "common/dtype.h"

namespace moestro {

inline constexpr uint32_t kExpertLayoutId = 2;  ///< in the manifest and in content keys; change it with the layout
inline constexpr int64_t kBlockTileColumns = 256;
inline constexpr int64_t kSliceBytesMax = 1 << 20;
inline constexpr int64_t kDiskAlign = 4096;
inline constexpr int64_t kPartAlign = 64;

/// The formats of an expert's matrices.
struct ExpertFormats {
  DType gate = DType::kF32, up = DType::kF32, down = DType::kF32;
  constexpr ExpertFormats() = default;
  constexpr ExpertFormats(DType all) : gate(all), up(all), down(all) {}  // NOLINT: one format is the usual case
  constexpr ExpertFormats(DType g, DType u, DType d) : gate(g), up(u), down(d) {}
  /// The one format of all matrices, or kMixed.
  constexpr DType dtype() const { return gate == up && up == down ? gate : DType::kMixed; }
  friend constexpr bool operator==(const ExpertFormats&, const ExpertFormats&) = default;
};

/// Byte offsets within one tile, and its padded size.
struct ExpertTile {
  int64_t first_ffn = 0;
  int64_t ffn = 0;     ///< columns of ffn in this tile
  int64_t offset = 0;  ///< of the tile in the blob
  int64_t gate = 0, up = 0, down = 0;  ///< from the tile's start; gate: only if is_gated()
  int64_t gate_scales = 0, up_scales = 0, down_scales = 0;  ///< 0: there are none
  int64_t bytes = 0;   ///< padded to kDiskAlign
};

/// Byte offsets within the blob. gate: only if is_gated().
struct ExpertBiases {
  int64_t gate = 0, up = 0, down = 0;
};

/// Shapes and offsets of one expert at one precision. A plain value: compute it once per model and precision.
class ExpertLayout {
 public:
  ExpertLayout() = default;
  /// hidden, ffn >= 1. Formats with and without parameters are not mixed. Without a gate, its format is not used.
  ExpertLayout(int64_t hidden, int64_t ffn, ExpertFormats formats, bool bias = false, bool gated = true);

  int64_t hidden() const { return hidden_; }
  int64_t ffn() const { return ffn_; }
  const ExpertFormats& formats() const { return formats_; }
  DType dtype() const { return formats_.dtype(); }
  int64_t tile_ffn() const { return tile_ffn_; }
  int64_t tiles() const { return tiles_; }
  int64_t bytes() const { return bytes_; }
  bool is_gated() const { return gated_; }
  ExpertTile tile(int64_t index) const;
  bool has_bias() const { return bias_bytes_ > 0; }
  ExpertBiases biases() const;  ///< if has_bias()
  int64_t bias_bytes() const { return bias_bytes_; }  ///< padded to kDiskAlign; 0: none

 private:
  ExpertTile measure(int64_t ffn_columns) const;
  int64_t widest_tile() const;
  int64_t hidden_ = 0, ffn_ = 0, tile_ffn_ = 0, tiles_ = 0, full_tile_bytes_ = 0, bytes_ = 0, bias_bytes_ = 0;
  ExpertFormats formats_;
  bool gated_ = true;
};

/// Whether layout `id` has the same tiles as this one. Before layout 2, blocks' were as wide as fits in 1 MiB.
constexpr bool has_these_tiles(uint32_t id, DType down) {
  const bool narrow = is_blocks(down) && block_shape(down).columns < kBlockTileColumns;
  return id == kExpertLayoutId || (id == 1 && !narrow);
}

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace moestro
