#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pack/gguf_bytes.h"

namespace moestro::store {
namespace {

using ::moestro::testing::GgufBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kF32 = 0, kQ4K = 12;

GgufBytes two_tensors() {
  return GgufBytes()
      .head(2, 2)
      .entry("general.architecture", "llama")
      .entry("llama.block_count", 7)
      .tensor("a", {8, 3}, kF32, 0)
      .tensor("b", {256, 2}, kQ4K, 96)
      .data(96 + 2 * 144);
}

TEST(GgufHeader, ReadsMetadataAndTensors) {
  const GgufBytes file = two_tensors();
  const auto parsed = file.parse();
  ASSERT_TRUE(parsed) << parsed.status().message();
  ASSERT_FALSE(parsed->needs_more);
  const GgufHeader& header = parsed->header;
  EXPECT_EQ(**header.metadata.text("general.architecture"), "llama");
  EXPECT_EQ(**header.metadata.integer("llama.block_count"), 7);
  EXPECT_EQ(**header.metadata.number("llama.block_count"), 7.0);
  EXPECT_FALSE(*header.metadata.integer("absent"));
  EXPECT_THAT(header.metadata.text("llama.block_count").status().message(),
              HasSubstr("'llama.block_count' is not a text"));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_THAT(header.tensors[0].shape, ElementsAre(3, 8));
  EXPECT_EQ(header.tensors[1].bytes, 288u);
  EXPECT_EQ(header.tensors[1].offset + 288, file.bytes().size());
}

// Whatever part of a file is read first: more is asked for, or the end is found to be missing.
TEST(GgufHeader, AsksForMoreUntilItsEnd) {
  const std::string bytes = two_tensors().bytes();
  bool complete = false;
  for (size_t n = 0; n <= bytes.size(); ++n) {
    const auto part = std::as_bytes(std::span(bytes)).first(n);
    const auto parsed = parse_gguf_header(part, bytes.size(), "x.gguf");
    ASSERT_TRUE(parsed) << n << ": " << parsed.status().message();
    ASSERT_TRUE(!complete || !parsed->needs_more) << n;
    complete = !parsed->needs_more;
    EXPECT_FALSE(parse_gguf_header(part, n, "x.gguf")) << "a file that ends there is let in: " << n << " bytes"
                                                       << (n == bytes.size() ? " (all)" : "");
    if (n + 1 == bytes.size()) break;
  }
  EXPECT_TRUE(complete);
}

GgufBytes list_of_bytes(GgufBytes file, const std::string& key, uint64_t count) {
  return file.text(key).number<uint32_t>(9).number<uint32_t>(0).number(count).raw(std::string(count, 'x'));
}

struct Bad {
  GgufBytes file;
  const char* says;
};

TEST(GgufHeader, RefusesWhatLies) {
  const auto with = [](uint32_t type, std::vector<uint64_t> dimensions, uint64_t offset = 0) {
    return GgufBytes().head(1, 0).tensor("t", dimensions, type, offset).data(64);
  };
  const auto value = [](uint32_t kind) { return GgufBytes().head(0, 1).text("k").number<uint32_t>(kind); };
  const Bad bad[] = {
      {GgufBytes().raw("GGML").number<uint32_t>(3).number<uint64_t>(0).number<uint64_t>(0), "is not a GGUF file"},
      {GgufBytes().head(0, 0, 2), "version 2"},
      {GgufBytes().head(0, 0, 0x03000000), "big-endian"},
      {GgufBytes().head(uint64_t{1} << 40, 0), "1099511627776 tensors"},
      {GgufBytes().head(0, uint64_t{1} << 40), "1099511627776 entries"},
      {GgufBytes().head(0, 1), "ends within its header"},
      {GgufBytes().head(0, 1).number(uint64_t{1} << 60), "a key of 1152921504606846976 bytes"},
      {value(8).number(uint64_t{1} << 60), "a text of"},
      {value(9).number<uint32_t>(8).number(uint64_t{1} << 20), "an array of 1048576 values"},
      {value(9).number<uint32_t>(9).number<uint64_t>(0), "an array of arrays"},
      {list_of_bytes(GgufBytes().head(0, 2), "k", 5 << 20).text("l").number<uint32_t>(9).number<uint32_t>(0)
           .number<uint64_t>(5 << 20).data(6 << 20), "lists of more than 8388608 values"},
      {value(9).number<uint32_t>(77).number<uint64_t>(0), "values of kind 77"},
      {value(13).number<uint64_t>(0), "a value of kind 13"},
      {value(10).number(~uint64_t{0}), "above 2^63"},
      {value(7).number<uint8_t>(2), "a truth value of 2"},
      {GgufBytes().head(0, 2).entry("k", 1).entry("k", 2), "'k' is empty or given twice"},
      {GgufBytes().head(2, 0).tensor("t", {4}, kF32, 0).tensor("t", {4}, kF32, 32).data(48),
       "'t' has no name or is given"},
      {with(77, {4}), "unknown type 77"},
      {with(4, {4}), "unknown type 4"},
      {with(kF32, {}), "has 0 dimensions"},
      {GgufBytes().head(1, 0).tensor("blk\xff\x1b", {0}, kF32, 0).data(64), "tensor 'blk\ufffd?' has a dimension of 0"},
      {with(kF32, {1, 1, 1, 1, 1}), "has 5 dimensions"},
      {with(kF32, {0}), "a dimension of 0"},
      {with(kF32, {uint64_t{1} << 40, uint64_t{1} << 40}), "a dimension of 1099511627776"},
      {with(kQ4K, {255}), "not whole blocks of 256 (Q4_K)"},
      {with(kF32, {16}, 4), "no multiple of 32"},
      {with(kF32, {16}, 32), "ends beyond the file"},
      {with(kF32, {16}, ~uint64_t{0} - 31), "ends beyond the file"},
      {with(kF32, {4}), "48 bytes at the end belong to no tensor"},
      {GgufBytes().head(2, 0).tensor("a", {16}, kF32, 0).tensor("b", {8}, kF32, 32).data(64), "'b' overlaps"},
      {GgufBytes().head(2, 0).tensor("a", {8}, kF32, 0).tensor("b", {8}, kF32, 64).data(96), "bytes before tensor 'b'"},
      {GgufBytes().head(0, 1).entry("general.alignment", 3), "'general.alignment' is 3"},
      {GgufBytes().head(0, 1).entry("general.alignment", "x"), "'general.alignment' is not a whole number"},
  };
  for (const Bad& b : bad) {
    const auto parsed = b.file.parse();
    ASSERT_FALSE(parsed) << b.says;
    EXPECT_THAT(parsed.status().message(), HasSubstr(b.says));
    EXPECT_THAT(parsed.status().message(), HasSubstr("x.gguf")) << b.says;
  }
}

}  // namespace
}  // namespace moestro::store
