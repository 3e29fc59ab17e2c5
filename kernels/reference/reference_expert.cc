#include "common/float16.h"
#include "common/formats/blocks.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

namespace {
void ffn_row(const ExpertLayout& layout, const std::byte* blob, const float* x, float* out) {
  std::vector<double> y(static_cast<size_t>(layout.hidden()), 0.0);
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const std::byte* base = blob + t.offset;
    std::vector<float> widened[3];  // of blocks, once: a value of one costs as much as the whole block
    const auto part = [&](DType dtype, int64_t values, int64_t scales, int64_t rows, int64_t cols) {
      if (is_blocks(dtype)) {
        std::vector<float>& wide = widened[values == t.gate ? 0 : values == t.up ? 1 : 2];
        wide.resize(static_cast<size_t>(rows * cols));
        formats::dequantise(dtype, base + values, rows * cols, wide.data());
        return Weight{wide.data(), DType::kF32, rows, cols, nullptr};
      }
      return Weight{base + values, dtype, rows, cols, reinterpret_cast<const uint16_t*>(base + scales)};
    };
    const Weight gate = part(layout.formats().gate, t.gate, t.gate_scales, t.ffn, layout.hidden()),
                 up = part(layout.formats().up, t.up, t.up_scales, t.ffn, layout.hidden()),
                 down = part(layout.formats().down, t.down, t.down_scales, layout.hidden(), t.ffn);
    for (int64_t f = 0; f < t.ffn; ++f) {
      double g = 0.0, u = 0.0;
      for (int64_t c = 0; c < layout.hidden(); ++c) {
        g += weight_at(gate, f, c) * x[c];
        u += weight_at(up, f, c) * x[c];
      }
      const double a = silu(g) * u;
      for (int64_t h = 0; h < layout.hidden(); ++h) y[static_cast<size_t>(h)] += weight_at(down, h, f) * a;
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
