#pragma once
// Random blocks of every format of common/formats/blocks.h, and experts of them.

#include <algorithm>
#include <optional>

#include "common/formats/blocks.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {

inline std::vector<DType> block_formats() {
  std::vector<DType> all;
  for (size_t i = 0; i < kBlockFormats; ++i) all.push_back(block_format(i));
  return all;
}
/// Those that GPUs compute with.
inline std::vector<DType> block_formats_of_gpus() {
  std::vector<DType> all = block_formats();
  std::erase_if(all, is_made_of_others);
  return all;
}

/// What blocks are filled with.
struct BlockBits {
  bool subnormal = false;  ///< scales, where they are f16, are below the smallest normal one
  std::optional<std::byte> every = std::nullopt;  ///< byte has these bits, instead of random ones
};

/// Blocks of random bits, and scales of either sign with which the numbers are about as large as normal ones.
inline void fill_blocks(Random& random, DType d, std::byte* blocks, int64_t count, const BlockBits& bits = {}) {
  const BlockShape shape = block_shape(d);
  const auto either_sign = [&](float value) { return random.below(2) == 0 ? value : -value; };
  const auto put = [&](std::byte* at, float value) {
    value = either_sign(value * (0.5f + static_cast<float>(random.below(1000)) / 1000.0f));
    uint16_t half = f32_to_f16(value);
    if (bits.subnormal) half = static_cast<uint16_t>((half & 0x8000) | (1 + random.below(0x3ff)));
    std::memcpy(at, &half, sizeof half);
  };
  for (int64_t i = 0; i < count; ++i, blocks += shape.bytes) {
    random.fill(blocks, shape.bytes);
    if (bits.every) std::fill_n(blocks, shape.bytes, *bits.every);
    const auto put_f32 = [&](float value) {
      value = either_sign(value * (0.5f + static_cast<float>(random.below(1000)) / 1000.0f));
      std::memcpy(blocks, &value, sizeof value);
    };
    const auto make_e4m3 = [&](int64_t count_of, uint8_t exponent_max) {  // and small: none is NaN
      for (int64_t b = 4; b < 4 + count_of; ++b)
        blocks[b] = static_cast<std::byte>((random.below(exponent_max) << 3 | random.below(8)) | random.below(2) << 7);
    };
    switch (d) {
      case DType::kFP8:
      case DType::kFP8G32: put_f32(0.1f), make_e4m3(shape.columns, 12); break;
      case DType::kInt2: {
        const uint16_t both[] = {f32_to_bf16(0.05f + 0.01f * static_cast<float>(random.below(8))), f32_to_bf16(-0.12f)};
        std::memcpy(blocks, both, sizeof both);
        break;
      }
      case DType::kNVFP4: put_f32(0.05f), make_e4m3(shape.columns / 16, 9); break;
      case DType::kInt4G128:
      case DType::kInt4G64:
      case DType::kInt4G32: {
        put(blocks, 0.1f);
        blocks[2] = static_cast<std::byte>(random.below(17)), blocks[3] = static_cast<std::byte>(random.below(2));
        const uint16_t as_bf16 = f32_to_bf16(either_sign(0.1f));
        if (blocks[3] != std::byte{0}) std::memcpy(blocks, &as_bf16, sizeof as_bf16);
        break;
      }
      case DType::kQ4_1:
      case DType::kQ5_1: put(blocks, 0.05f), put(blocks + 2, -0.5f); break;
      case DType::kIQ4XS: put(blocks, 0.0005f); break;
      case DType::kMXFP4: blocks[0] = static_cast<std::byte>(121 + random.below(5)); break;
      case DType::kQ2K: put(blocks + 80, 0.05f), put(blocks + 82, 0.03f); break;
      case DType::kQ3K: put(blocks + 108, 0.01f); break;
      case DType::kQ4K: put(blocks, 0.003f), put(blocks + 2, 0.02f); break;
      case DType::kQ5K: put(blocks, 0.0015f), put(blocks + 2, 0.02f); break;
      case DType::kQ6K: put(blocks + 208, 0.0005f); break;
      default: put(blocks, d == DType::kQ8_0 || d == DType::kIQ4NL ? 0.01f : 0.1f); break;
    }
  }
}

/// A matrix of blocks, and the same as f32.
struct BlockMatrix {
  BlockMatrix(Random& random, DType d, int64_t rows, int64_t cols, const BlockBits& bits = {})
      : bytes(static_cast<size_t>(rows * row_bytes(d, cols)) + 64, std::byte{0xff}),
        values(static_cast<size_t>(rows * cols)) {
    fill_blocks(random, d, bytes.data(), rows * cols / block_shape(d).columns, bits);
    formats::dequantise(d, bytes.data(), rows * cols, values.data());
    weight = {bytes.data(), d, rows, cols, nullptr};
    wide = {values.data(), DType::kF32, rows, cols, nullptr};
  }
  std::vector<std::byte> bytes;
  std::vector<float> values;
  Weight weight, wide;
};

/// The blob of an expert of random blocks; padding is 0xff.
inline std::vector<std::byte> random_expert(Random& random, const ExpertLayout& layout) {
  std::vector<std::byte> blob(static_cast<size_t>(layout.bytes()), std::byte{0xff});
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const auto fill = [&](DType d, int64_t at, int64_t numbers) {
      fill_blocks(random, d, blob.data() + t.offset + at, numbers / block_shape(d).columns);
    };
    fill(layout.formats().gate, t.gate, t.ffn * layout.hidden());
    fill(layout.formats().up, t.up, t.ffn * layout.hidden());
    fill(layout.formats().down, t.down, t.ffn * layout.hidden());
  }
  return blob;
}

}  // namespace moestro::kernels::test
