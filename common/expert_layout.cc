#include "common/expert_layout.h"

#include <algorithm>

namespace moestro {

ExpertTile ExpertLayout::measure(int64_t f) const {
  const auto& [gate, up, down] = formats_;
  ExpertTile t;
  t.ffn = f;
  t.gate = 0;
  t.up = gated_ ? round_up(f * row_bytes(gate, hidden_), kPartAlign) : 0;
  t.down = t.up + round_up(f * row_bytes(up, hidden_), kPartAlign);
  int64_t end = t.down + round_up(hidden_ * row_bytes(down, f), kPartAlign);
  if (has_parameters(up)) {
    t.gate_scales = gated_ ? end : 0;
    t.up_scales = end + (gated_ ? round_up(matrix_parameter_bytes(gate, f, hidden_), kPartAlign) : 0);
    t.down_scales = t.up_scales + round_up(matrix_parameter_bytes(up, f, hidden_), kPartAlign);
    end = t.down_scales + round_up(matrix_parameter_bytes(down, hidden_, f), kPartAlign);
  }
  t.bytes = round_up(end, kDiskAlign);
  return t;
}

namespace {
constexpr int64_t bias_part(int64_t numbers) {
  return round_up(numbers * static_cast<int64_t>(sizeof(float)), kPartAlign);
}
}  // namespace

ExpertLayout::ExpertLayout(int64_t hidden, int64_t ffn, ExpertFormats formats, bool bias, bool gated)
    : hidden_(hidden), ffn_(ffn), formats_(formats), gated_(gated) {
  if (!gated) formats_.gate = formats_.up;
  MOESTRO_CHECK(hidden >= 1 && ffn >= 1, "an expert has at least one row and column");
  MOESTRO_CHECK(formats_.dtype() != DType::kMixed ||
                    !(has_parameters(formats_.gate) || has_parameters(formats_.up) || has_parameters(formats_.down)),
                "matrices with parameters have one format");
  tile_ffn_ = widest_tile();
  tiles_ = ceil_div(ffn, tile_ffn_);
  full_tile_bytes_ = measure(tile_ffn_).bytes;
  if (bias) bias_bytes_ = round_up((gated ? 2 : 1) * bias_part(ffn) + bias_part(hidden), kDiskAlign);
  bytes_ = (tiles_ - 1) * full_tile_bytes_ + measure(ffn - (tiles_ - 1) * tile_ffn_).bytes + bias_bytes_;
}

ExpertBiases ExpertLayout::biases() const {
  MOESTRO_CHECK(has_bias(), "an expert with biases");
  const int64_t first = bytes_ - bias_bytes_;
  const int64_t up = gated_ ? first + bias_part(ffn_) : first;
  return {first, up, up + bias_part(ffn_)};
}

int64_t ExpertLayout::widest_tile() const {
  if (dtype() == DType::kBF16In12) return ExpertLayout(hidden_, ffn_, DType::kBF16, false, gated_).tile_ffn();
  const int64_t step = is_blocks(formats_.down) ? kBlockTileColumns : kQuantGroup;
  int64_t width = std::min(ffn_, step);
  while (width < ffn_ && measure(std::min(ffn_, width + step)).bytes <= kSliceBytesMax)
    width = std::min(ffn_, width + step);
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
