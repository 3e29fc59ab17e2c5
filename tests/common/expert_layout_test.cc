#include "common/expert_layout.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

struct Shape {
  int64_t hidden, ffn;
};

TEST(ExpertLayout, TilesCoverTheFfnDimensionOnceAndInOrder) {
  for (Shape s : {Shape{64, 64},
                  {64, 1},
                  {1, 1},
                  {160, 128},
                  {1024, 3584},
                  {1024, 384},
                  {2048, 7168},
                  {6144, 16384},
                  {100, 130}}) {
    for (DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
      const ExpertLayout layout(s.hidden, s.ffn, d);
      int64_t ffn = 0, offset = 0;
      for (int64_t i = 0; i < layout.tiles(); ++i) {
        const ExpertTile t = layout.tile(i);
        EXPECT_EQ(t.first_ffn, ffn);
        EXPECT_EQ(t.offset, offset);
        EXPECT_EQ(t.offset % kDiskAlign, 0);
        EXPECT_EQ(t.bytes % kDiskAlign, 0);
        for (int64_t part : {t.gate, t.up, t.down, t.gate_scales, t.up_scales, t.down_scales})
          EXPECT_EQ(part % kPartAlign, 0);
        EXPECT_GE(t.up - t.gate, t.ffn * row_bytes(d, s.hidden));
        EXPECT_LE(t.down + s.hidden * row_bytes(d, t.ffn), t.bytes);
        if (is_quantised(d)) EXPECT_LE(t.down_scales + s.hidden * parameter_bytes(d, t.ffn), t.bytes);
        if (i + 1 < layout.tiles()) EXPECT_EQ(t.ffn % kQuantGroup, 0) << "a quantisation group never straddles tiles";
        ffn += t.ffn;
        offset += t.bytes;
      }
      EXPECT_EQ(ffn, s.ffn);
      EXPECT_EQ(offset, layout.bytes());
    }
  }
}

TEST(ExpertLayout, TilesOfBlocksAreWhatKernelsTakeAtATime) {
  for (const int64_t hidden : {1024, 4096}) {
    for (const DType d : {DType::kQ8_0, DType::kMXFP4, DType::kNVFP4, DType::kInt2, DType::kQ4K}) {
      const ExpertLayout layout(hidden, 3584, d);
      EXPECT_GT(layout.tiles(), 1);
      EXPECT_EQ(layout.tile_ffn() % kBlockTileColumns, 0) << dtype_name(d);
    }
  }
  EXPECT_EQ(ExpertLayout(1024, 3584, DType::kQ8_0).tile_ffn(), 256) << "1 MiB has room for 320";
  EXPECT_EQ(ExpertLayout(4096, 384, DType::kQ8_0).tile(1).ffn, 128);
  EXPECT_EQ(ExpertLayout(4096, 96, DType::kQ8_0).tile_ffn(), 96);
}

TEST(ExpertLayout, BiasesFollowTheTilesAndMoveNone) {
  for (DType d : {DType::kF32, DType::kBF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
    const ExpertLayout plain(100, 1130, d), with(100, 1130, d, true);
    EXPECT_FALSE(plain.has_bias());
    ASSERT_TRUE(with.has_bias());
    ASSERT_EQ(with.tiles(), plain.tiles());
    const int64_t last = plain.tiles() - 1;
    EXPECT_EQ(with.tile(last).offset, plain.tile(last).offset);
    EXPECT_EQ(with.tile(last).bytes, plain.tile(last).bytes);
    const ExpertBiases b = with.biases();
    EXPECT_EQ(b.gate, plain.bytes());
    EXPECT_GE(b.up, b.gate + 1130 * 4);
    EXPECT_GE(b.down, b.up + 1130 * 4);
    EXPECT_LE(b.down + 100 * 4, with.bytes());
    EXPECT_EQ(with.bytes(), plain.bytes() + with.bias_bytes());
    for (const int64_t at : {b.gate, b.up, b.down}) EXPECT_EQ(at % kPartAlign, 0);
    EXPECT_EQ(with.bytes() % kDiskAlign, 0);
  }
}

TEST(ExpertLayout, WithoutAGateThereIsNoRoomForIt) {
  for (DType d : {DType::kF32, DType::kBF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
    const ExpertLayout gated(128, 64, d, true), plain(128, 64, d, true, false);
    EXPECT_TRUE(gated.is_gated());
    EXPECT_FALSE(plain.is_gated());
    const ExpertTile t = plain.tile(0);
    EXPECT_EQ(t.up, 0);
    EXPECT_EQ(t.down, gated.tile(0).down - gated.tile(0).up);
    EXPECT_GE(plain.biases().down, plain.biases().up + 64 * 4);
    EXPECT_LT(plain.bytes(), gated.bytes());
  }
  const ExpertLayout wide(6144, 16384, DType::kBF16, false, false);
  int64_t ffn = 0, offset = 0;
  for (int64_t i = 0; i < wide.tiles(); ++i) {
    EXPECT_EQ(wide.tile(i).offset, offset);
    ffn += wide.tile(i).ffn, offset += wide.tile(i).bytes;
  }
  EXPECT_EQ(ffn, 16384);
  EXPECT_EQ(offset, wide.bytes());
}

TEST(ExpertLayout, ATileIsOneSliceWhere64ColumnsFit) {
  const ExpertLayout mini(1024, 3584, DType::kBF16);
  EXPECT_LE(mini.tile(0).bytes, kSliceBytesMax);
  EXPECT_EQ(mini.tile_ffn(), 128);
  EXPECT_LE(static_cast<double>(mini.bytes()), 1.01 * 3 * 1024 * 3584 * 2) << "padding costs at most 1 %";
  const ExpertLayout wide(6144, 16384, DType::kBF16);
  EXPECT_EQ(wide.tile_ffn(), 64) << "wider than a slice: the tile is cut for reading";
}

}  // namespace
}  // namespace moestro
