// Every number of every expert lies where common/expert_layout.h says, and padding is zero.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "store/pack/packer.h"
#include "store/pack/slice_reader.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using testing::synthetic_value;

struct Shape {
  int64_t hidden, ffn;
};

class ExpertBytes : public ::testing::TestWithParam<std::tuple<DType, Shape>> {};

/// Value r of row `row` (width `width`) of a part of a tile, scales applied.
float value_at(const std::vector<std::byte>& tile, DType d, int64_t part, int64_t scales, int64_t row, int64_t width,
               int64_t r) {
  const std::byte* at = tile.data() + part + row * row_bytes(d, width) + (d == DType::kInt4 ? 0 : r * dtype_bytes(d));
  uint16_t half = 0;
  float full = 0;
  switch (d) {
    case DType::kF32: std::memcpy(&full, at, 4); return full;
    case DType::kBF16: std::memcpy(&half, at, 2); return bf16_to_f32(half);
    case DType::kF16: std::memcpy(&half, at, 2); return f16_to_f32(half);
    default: break;  // those with parameters, and bf16 in 12 bits: in_12_bits_test.cc
  }
  const int64_t group = row * quant_groups(width) + r / kQuantGroup;
  uint16_t parameters[2] = {};
  std::memcpy(parameters, tile.data() + scales + group * group_parameters(d) * 2,
              static_cast<size_t>(group_parameters(d)) * 2);
  const float scale = bf16_to_f32(parameters[0]);
  if (d == DType::kInt8) return static_cast<float>(static_cast<int8_t>(*at)) * scale;
  const int64_t within = r % 64;
  const auto byte = static_cast<unsigned>(at[r / 64 * 32 + within / 32 * 16 + within % 16]);
  return static_cast<float>(within % 32 < 16 ? byte % 16 : byte / 16) * scale + bf16_to_f32(parameters[1]);
}

void expect_near(float got, float checkpoint_value, DType d, const char* part, int64_t row, int64_t column) {
  const float expected = bf16_to_f32(f32_to_bf16(checkpoint_value));
  const float tolerance = d == DType::kInt4   ? 2.5f / 15 * 1.5f
                          : d == DType::kInt8 ? 1.25f / 127 * 0.51f
                          : d == DType::kF16  ? 1e-3f
                                              : 0.0f;
  ASSERT_LE(std::fabs(got - expected), tolerance) << part << " row " << row << " column " << column;
}

TEST_P(ExpertBytes, LieAsLaidOut) {
  const auto [dtype, shape] = GetParam();
  const testing::TemporaryDirectory dir;
  testing::write_checkpoint(
      dir / "src",
      {.architecture = "MixtralForCausalLM", .hidden = shape.hidden, .ffn = shape.ffn, .experts = 2, .layers = 1});
  const auto packed = pack_checkpoint(dir / "src", dir / "pack", {.experts = {dtype}}, {});
  ASSERT_TRUE(packed) << packed.status().message();
  const auto m = open_pack(dir / "pack");
  const uint32_t blob = m->expert_blob(MoeLayerId(0), ExpertId(1), dtype).value();
  std::vector<std::byte> bytes(m->blobs[blob].length);
  ASSERT_TRUE(SliceReader::open(dir / "pack", *m)->read_blob(blob, bytes).is_ok());
  const ExpertLayout layout(shape.hidden, shape.ffn, dtype);
  ASSERT_EQ(bytes.size(), static_cast<size_t>(layout.bytes()));
  const std::string prefix = "model.layers.0.block_sparse_moe.experts.1.";
  for (int64_t t = 0; t < layout.tiles(); ++t) {
    const ExpertTile tile = layout.tile(t);
    const std::vector<std::byte> part(bytes.begin() + tile.offset, bytes.begin() + tile.offset + tile.bytes);
    for (int64_t f = 0; f < tile.ffn; ++f)
      for (int64_t h = 0; h < shape.hidden; ++h) {
        const int64_t row = (tile.first_ffn + f) * shape.hidden + h, column = h * shape.ffn + tile.first_ffn + f;
        expect_near(value_at(part, dtype, tile.gate, tile.gate_scales, f, shape.hidden, h),
                    synthetic_value(prefix + "w1.weight", row), dtype, "gate", f, h);
        expect_near(value_at(part, dtype, tile.up, tile.up_scales, f, shape.hidden, h),
                    synthetic_value(prefix + "w3.weight", row), dtype, "up", f, h);
        expect_near(value_at(part, dtype, tile.down, tile.down_scales, h, tile.ffn, f),
                    synthetic_value(prefix + "w2.weight", column), dtype, "down", h, f);
      }
    const int64_t used = is_quantised(dtype) ? tile.down_scales + shape.hidden * parameter_bytes(dtype, tile.ffn)
                                             : tile.down + shape.hidden * row_bytes(dtype, tile.ffn);
    for (int64_t i = used; i < tile.bytes; ++i)
      ASSERT_EQ(part[static_cast<size_t>(i)], std::byte{0}) << "padding of tile " << t;
  }
}

// One short tile; several tiles with a short last one; a tile of more than one slice.
INSTANTIATE_TEST_SUITE_P(Shapes, ExpertBytes,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kInt8,
                                                              DType::kInt4),
                                            ::testing::Values(Shape{72, 37}, Shape{320, 1100}, Shape{6000, 70})));

}  // namespace
}  // namespace moestro::store
