#include "common/expert_layout.h"

#include <algorithm>

namespace moestro {

ExpertTile ExpertLayout::measure(int64_t f) const {
  const int64_t gate_bytes = round_up(f * row_bytes(dtype_, hidden_), kPartAlign);
  ExpertTile t;
  t.ffn = f;
  t.gate = 0;
  t.up = gate_bytes;
  t.down = 2 * gate_bytes;
  int64_t end = t.down + round_up(hidden_ * row_bytes(dtype_, f), kPartAlign);
  if (has_parameters(dtype_)) {
    const int64_t gate_scale_bytes = round_up(matrix_parameter_bytes(dtype_, f, hidden_), kPartAlign);
    t.gate_scales = end;
    t.up_scales = t.gate_scales + gate_scale_bytes;
    t.down_scales = t.up_scales + gate_scale_bytes;
    end = t.down_scales + round_up(matrix_parameter_bytes(dtype_, hidden_, f), kPartAlign);
  }
  t.bytes = round_up(end, kDiskAlign);
  return t;
}

namespace {
constexpr int64_t bias_part(int64_t numbers) {
  return round_up(numbers * static_cast<int64_t>(sizeof(float)), kPartAlign);
}
}  // namespace

ExpertLayout::ExpertLayout(int64_t hidden, int64_t ffn, DType dtype, bool bias)
    : hidden_(hidden), ffn_(ffn), dtype_(dtype) {
  MOESTRO_CHECK(hidden >= 1 && ffn >= 1, "an expert has at least one row and column");
  tile_ffn_ = widest_tile();
  tiles_ = ceil_div(ffn, tile_ffn_);
  full_tile_bytes_ = measure(tile_ffn_).bytes;
  if (bias) bias_bytes_ = round_up(2 * bias_part(ffn) + bias_part(hidden), kDiskAlign);
  bytes_ = (tiles_ - 1) * full_tile_bytes_ + measure(ffn - (tiles_ - 1) * tile_ffn_).bytes + bias_bytes_;
}

ExpertBiases ExpertLayout::biases() const {
  MOESTRO_CHECK(has_bias(), "an expert with biases");
  const int64_t first = bytes_ - bias_bytes_;
  return {first, first + bias_part(ffn_), first + 2 * bias_part(ffn_)};
}

int64_t ExpertLayout::widest_tile() const {
  if (computed_as(dtype_) != dtype_) return ExpertLayout(hidden_, ffn_, computed_as(dtype_)).tile_ffn();
  int64_t width = std::min(ffn_, kQuantGroup);
  while (width < ffn_ && measure(std::min(ffn_, width + kQuantGroup)).bytes <= kSliceBytesMax)
    width = std::min(ffn_, width + kQuantGroup);
  return width;
}

ExpertTile ExpertLayout::tile(int64_t index) const {
  MOESTRO_CHECK(index >= 0 && index < tiles_, "tile index");
  const int64_t first = index * tile_ffn_;
  ExpertTile t = measure(std::min(tile_ffn_, ffn_ - first));
  t.first_ffn = first;
  t.offset = index * full_tile_bytes_;
  return t;
}

}  // namespace moestro
