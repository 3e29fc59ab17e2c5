#include "common/float16.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
/// One of a tile's three matrices, `cols` wide.
struct TileMatrix {
  const std::byte* values;
  const std::byte* scales;
  DType dtype;
  int64_t cols;

  double at(int64_t row, int64_t col) const {
    if (!is_quantised(dtype)) return value_at(values, dtype, row * cols + col);
    const int64_t group = row * quant_groups(cols) + col / kQuantGroup;
    const auto* parameters = reinterpret_cast<const uint16_t*>(scales) + group * group_parameters(dtype);
    const double scale = bf16_to_f32(parameters[0]);
    if (dtype == DType::kInt8) return reinterpret_cast<const int8_t*>(values)[row * cols + col] * scale;
    return int4_at(values + row * row_bytes(dtype, cols), col) * scale + static_cast<double>(bf16_to_f32(parameters[1]));
  }

  /// The layout of common/expert_layout.h: bytes b of a group hold columns b % 16 + 32 * (b / 16), and 16 more in the high half.
  static int int4_at(const std::byte* row, int64_t col) {
    const int64_t within = col % kQuantGroup;
    const auto byte = static_cast<unsigned>(row[col / kQuantGroup * (kQuantGroup / 2) + within / 32 * 16 + within % 16]);
    return static_cast<int>(within % 32 < 16 ? byte & 15u : byte >> 4);
  }
};

void ffn_row(const ExpertLayout& layout, const std::byte* blob, const float* x, float* out) {
  std::vector<double> y(static_cast<size_t>(layout.hidden()), 0.0);
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const std::byte* base = blob + t.offset;
    const TileMatrix gate{base + t.gate, base + t.gate_scales, layout.dtype(), layout.hidden()};
    const TileMatrix up{base + t.up, base + t.up_scales, layout.dtype(), layout.hidden()};
    const TileMatrix down{base + t.down, base + t.down_scales, layout.dtype(), t.ffn};
    for (int64_t f = 0; f < t.ffn; ++f) {
      double g = 0.0, u = 0.0;
      for (int64_t c = 0; c < layout.hidden(); ++c) {
        g += gate.at(f, c) * x[c];
        u += up.at(f, c) * x[c];
      }
      const double a = silu(g) * u;
      for (int64_t h = 0; h < layout.hidden(); ++h) y[static_cast<size_t>(h)] += down.at(h, f) * a;
    }
  }
  for (int64_t h = 0; h < layout.hidden(); ++h) out[h] = static_cast<float>(y[static_cast<size_t>(h)]);
}
}  // namespace

void ReferenceOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                              std::span<const RoutedRow> rows, int64_t top_k, float* out) {
  for (const RoutedRow& r : rows)
    ffn_row(layout, blob, x + r.token * layout.hidden(), out + (r.token * top_k + r.rank) * layout.hidden());
}

}  // namespace moestro::kernels::reference
