// Blocks of GGUF files against the numbers that gguf-py makes of them (tests/fixtures/blocks).

#include "common/formats/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/support/places.h"

namespace moestro::formats {
namespace {

std::vector<DType> block_formats() {
  std::vector<DType> all;
  for (size_t i = 0; i < kBlockFormats; ++i) all.push_back(block_format(i));
  return all;
}

struct Vectors {
  std::vector<std::byte> blocks;
  std::vector<float> numbers;
};

Vectors read_vectors(DType d) {
  std::ifstream file(test::source_dir() / "tests/fixtures/blocks" / (std::string(dtype_name(d)) + ".bin"),
                     std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const BlockShape shape = block_shape(d);
  const size_t count = bytes.size() / static_cast<size_t>(shape.bytes + 4 * shape.columns);
  Vectors v;
  v.blocks.resize(count * static_cast<size_t>(shape.bytes));
  v.numbers.resize(count * static_cast<size_t>(shape.columns));
  EXPECT_EQ(v.blocks.size() + 4 * v.numbers.size(), bytes.size());
  std::memcpy(v.blocks.data(), bytes.data(), v.blocks.size());
  std::memcpy(v.numbers.data(), bytes.data() + v.blocks.size(), 4 * v.numbers.size());
  return v;
}

TEST(Blocks, AreReadBitByBitAsTheirOwnImplementationReadsThem) {
  for (const DType d : block_formats()) {
    const Vectors v = read_vectors(d);
    ASSERT_GE(v.numbers.size(), 12u * 32u) << dtype_name(d);
    std::vector<float> got(v.numbers.size());
    dequantise(d, v.blocks.data(), static_cast<int64_t>(got.size()), got.data());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(v.numbers[i]))
          << dtype_name(d) << ", number " << i << ": " << got[i] << " against " << v.numbers[i];
  }
}

TEST(Blocks, WithScalesThatAreNotFiniteAreFound) {
  for (const DType d : block_formats()) {
    const Vectors v = read_vectors(d);
    EXPECT_FALSE(find_block_not_finite(d, 0, v.blocks)) << dtype_name(d);
    // Every byte that can make a number infinite or NaN, and no other, is found, wherever a piece begins.
    const auto size = static_cast<size_t>(block_shape(d).bytes);
    size_t found = 0;
    for (size_t byte = 0; byte < size; ++byte) {
      std::vector<std::byte> spoiled = v.blocks;
      spoiled[2 * size + byte] = std::byte{0xff};
      std::vector<float> numbers(v.numbers.size());
      dequantise(d, spoiled.data(), static_cast<int64_t>(numbers.size()), numbers.data());
      bool finite = true;
      for (const float f : numbers) finite = finite && std::isfinite(f);
      const auto bad = find_block_not_finite(d, 0, spoiled);
      if (!finite) {
        ASSERT_TRUE(bad) << dtype_name(d) << " byte " << byte;
      }
      if (!bad) continue;
      EXPECT_EQ(*bad, 2u) << dtype_name(d);
      ++found;
      const size_t begin = (2 * size + byte) / 4 * 4;
      const std::span piece = std::span(spoiled).subspan(begin);
      EXPECT_EQ(find_block_not_finite(d, begin, piece), bad) << dtype_name(d) << " byte " << byte;
    }
    EXPECT_GT(found, 0u) << dtype_name(d);
  }
}

}  // namespace
}  // namespace moestro::formats
