#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/float16.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
double gated(const GatedUnit& unit, double gate, double up) {
  if (unit.kind == GatedUnit::Kind::kSilu) return silu(gate) * up;
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
    std::memcpy(gate.data(), blob + at.gate, gate.size() * sizeof(float));
    std::memcpy(up.data(), blob + at.up, up.size() * sizeof(float));
    std::memcpy(down.data(), blob + at.down, down.size() * sizeof(float));
  }
};

void ffn_row(const ExpertLayout& layout, const std::byte* blob, const float* x, const GatedUnit& unit, float* out) {
  const Biases bias(layout, blob);
  std::vector<double> y(bias.down.begin(), bias.down.end());
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const std::byte* base = blob + t.offset;
    const auto part = [&](int64_t values, int64_t scales, int64_t rows, int64_t cols) {
      return Weight{base + values, layout.dtype(), rows, cols, reinterpret_cast<const uint16_t*>(base + scales)};
    };
    const Weight gate = part(t.gate, t.gate_scales, t.ffn, layout.hidden()),
                 up = part(t.up, t.up_scales, t.ffn, layout.hidden()),
                 down = part(t.down, t.down_scales, layout.hidden(), t.ffn);
    for (int64_t f = 0; f < t.ffn; ++f) {
      double g = bias.gate[static_cast<size_t>(t.first_ffn + f)], u = bias.up[static_cast<size_t>(t.first_ffn + f)];
      for (int64_t c = 0; c < layout.hidden(); ++c) {
        g += weight_at(gate, f, c) * x[c];
        u += weight_at(up, f, c) * x[c];
      }
      const double a = gated(unit, g, u);
      for (int64_t h = 0; h < layout.hidden(); ++h) y[static_cast<size_t>(h)] += weight_at(down, h, f) * a;
    }
  }
  for (int64_t h = 0; h < layout.hidden(); ++h) out[h] = static_cast<float>(y[static_cast<size_t>(h)]);
}
}  // namespace

void ReferenceOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                              std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) {
  for (const RoutedRow& r : rows)
    ffn_row(layout, blob, x + r.token * layout.hidden(), unit, out + (r.token * top_k + r.rank) * layout.hidden());
}

}  // namespace moestro::kernels::reference
