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

Eight eight_times(float value) {
  Eight all;
  all.fill(value);
  return all;
}

/// The outputs of eight rows side by side.
std::vector<Eight> ffn_rows(const std::vector<Tile>& tiles, const Biases& bias, const std::vector<Eight>& x,
                            const GatedUnit& unit) {
  std::vector<Eight> y;
  for (const float down : bias.down) y.push_back(eight_times(down));
  for (const Tile& t : tiles) {
    std::vector<Eight> activated;
    for (int64_t f = 0; f < t.ffn; ++f) {
      const auto row = static_cast<size_t>(f) * x.size(), of_bias = static_cast<size_t>(t.first_ffn + f);
      const Eight g = add_products(eight_times(bias.gate[of_bias]), x, t.gate.data() + row),
                  u = add_products(eight_times(bias.up[of_bias]), x, t.up.data() + row);
      Eight& a = activated.emplace_back();
      for (size_t i = 0; i < a.size(); ++i) a[i] = gated(unit, g[i], u[i]);
    }
    for (size_t h = 0; h < y.size(); ++h)
      y[h] = add_products(y[h], activated, t.down.data() + h * static_cast<size_t>(t.ffn));
  }
  return y;
}
}  // namespace

void ReferenceOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                              std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) {
  if (rows.empty()) return;
  MOESTRO_CHECK(layout.is_gated() == (unit.kind != GatedUnit::Kind::kRelu), "a gate has a unit that takes one");
  const std::vector<Tile> tiles = tiles_of(layout, blob);
  const Biases bias(layout, blob);
  const int64_t hidden = layout.hidden();
  for (size_t first = 0; first < rows.size(); first += 8) {
    const auto eight = rows.subspan(first, std::min<size_t>(8, rows.size() - first));
    std::vector<float> in;
    for (const RoutedRow& r : eight) in.insert(in.end(), x + r.token * hidden, x + (r.token + 1) * hidden);
    const std::vector<Eight> y =
        ffn_rows(tiles, bias, side_by_side(in.data(), static_cast<int64_t>(eight.size()), hidden), unit);
    for (size_t i = 0; i < eight.size(); ++i) {
      float* to = out + (eight[i].token * top_k + eight[i].rank) * hidden;
      for (const Eight& value : y) *to++ = static_cast<float>(value[i]);
    }
  }
}

}  // namespace moestro::kernels::reference
