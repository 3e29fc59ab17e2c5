#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
double gated(const GatedUnit& unit, double gate, double up) {
  if (unit.kind == GatedUnit::Kind::kSilu) return silu(gate) * up;
  if (unit.kind == GatedUnit::Kind::kRelu) return std::max(up, 0.0);
  const double limit = unit.limit, g = std::min(gate, limit);
  return g / (1.0 + std::exp(-unit.alpha * g)) * (std::clamp(up, -limit, limit) + 1.0);
}

/// Gate, up and down biases; zeros where there are none.
struct Biases {
  std::vector<float> gate, up, down;
  Biases(const ExpertLayout& layout, const std::byte* blob)
      : gate(static_cast<size_t>(layout.ffn())), up(gate), down(static_cast<size_t>(layout.hidden())) {
    if (!layout.has_bias()) return;
    const ExpertBiases at = layout.biases();
    if (layout.is_gated()) std::memcpy(gate.data(), blob + at.gate, gate.size() * sizeof(float));
    std::memcpy(up.data(), blob + at.up, up.size() * sizeof(float));
    std::memcpy(down.data(), blob + at.down, down.size() * sizeof(float));
  }
};

/// The matrices of one tile as numbers.
struct Tile {
  int64_t first_ffn, ffn;
  std::vector<double> gate, up, down;  ///< gate: zeros where there is none
};
std::vector<Tile> tiles_of(const ExpertLayout& layout, const std::byte* blob) {
  std::vector<Tile> tiles;
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const auto part = [&](DType dtype, int64_t values, int64_t scales, int64_t rows, int64_t cols) {
      const std::byte* base = blob + t.offset;
      return numbers_of({base + values, dtype, rows, cols, reinterpret_cast<const uint16_t*>(base + scales)});
    };
    std::vector<double> gate(static_cast<size_t>(t.ffn * layout.hidden()));
    if (layout.is_gated()) gate = part(layout.formats().gate, t.gate, t.gate_scales, t.ffn, layout.hidden());
    tiles.push_back({t.first_ffn, t.ffn, std::move(gate),
                     part(layout.formats().up, t.up, t.up_scales, t.ffn, layout.hidden()),
                     part(layout.formats().down, t.down, t.down_scales, layout.hidden(), t.ffn)});
  }
  return tiles;
}

void ffn_row(const std::vector<Tile>& tiles, const Biases& bias, const float* x, const GatedUnit& unit, float* out) {
  std::vector<double> y(bias.down.begin(), bias.down.end());
  const auto hidden = static_cast<int64_t>(y.size());
  for (const Tile& t : tiles) {
    for (int64_t f = 0; f < t.ffn; ++f) {
      double g = bias.gate[static_cast<size_t>(t.first_ffn + f)], u = bias.up[static_cast<size_t>(t.first_ffn + f)];
      for (int64_t c = 0; c < hidden; ++c) {
        g += t.gate[static_cast<size_t>(f * hidden + c)] * x[c];
        u += t.up[static_cast<size_t>(f * hidden + c)] * x[c];
      }
      const double a = gated(unit, g, u);
      for (int64_t h = 0; h < hidden; ++h) y[static_cast<size_t>(h)] += t.down[static_cast<size_t>(h * t.ffn + f)] * a;
    }
  }
  for (int64_t h = 0; h < hidden; ++h) out[h] = static_cast<float>(y[static_cast<size_t>(h)]);
}
}  // namespace

void ReferenceOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                              std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) {
  if (rows.empty()) return;
  MOESTRO_CHECK(layout.is_gated() == (unit.kind != GatedUnit::Kind::kRelu), "a gate has a unit that takes one");
  const std::vector<Tile> tiles = tiles_of(layout, blob);
  const Biases bias(layout, blob);
  for (const RoutedRow& r : rows)
    ffn_row(tiles, bias, x + r.token * layout.hidden(), unit, out + (r.token * top_k + r.rank) * layout.hidden());
}

}  // namespace moestro::kernels::reference
