// Packs of bf16 in 12 bits: every number is that of a pack of bf16, bit by bit; what has no such form is refused by
// name; numbers that are none are found behind right checksums.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>

#include "common/dense_layout.h"
#include "common/expert_layout.h"
#include "common/model/model_spec.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "store/pack/slice_reader.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryDirectory;
using testing::write_checkpoint;

constexpr DType kNarrow = DType::kBF16In12;

std::vector<std::byte> blob_of(const std::filesystem::path& pack, const Manifest& m, uint32_t blob) {
  std::vector<std::byte> bytes(m.blobs[blob].length);
  EXPECT_TRUE(SliceReader::open(pack, m)->read_blob(blob, bytes).is_ok());
  return bytes;
}

std::vector<uint16_t> widened(const std::byte* values, const std::byte* exponents, int64_t rows, int64_t cols) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * cols));
  bf16_in_12::decode(values, bf16_in_12::read_exponents(exponents, rows * cols), cols, 0, rows, out.data());
  return out;
}

std::vector<uint16_t> plain(const std::byte* values, int64_t rows, int64_t cols) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * cols));
  std::memcpy(out.data(), values, out.size() * sizeof(uint16_t));
  return out;
}

/// Mostly of a few magnitudes, and some of others; rounded where the checkpoint is f32.
float value(const std::string& tensor, int64_t i) {
  const float v = testing::synthetic_value(tensor, i);
  return i % 700 == 3 ? std::ldexp(v, -30 - static_cast<int>(i % 40)) : i % 1500 == 4 ? 0.0f : v;
}

struct TwoPacks {
  TemporaryDirectory dir;
  Manifest wide, narrow;
  explicit TwoPacks(testing::CheckpointOptions options, uint64_t scratch_bytes_max = 64 << 20) {
    options.value = value;
    write_checkpoint(dir / "src", options);
    for (const DType d : {DType::kBF16, kNarrow}) {
      const auto packed =
          pack_checkpoint(dir / "src", dir / std::string(dtype_name(d)),
                          {.experts = {d}, .dense = d, .jobs = 2, .scratch_bytes_max = scratch_bytes_max}, {});
      EXPECT_TRUE(packed) << packed.status().message();
    }
    wide = open_pack(dir / "bf16").value();
    narrow = open_pack(dir / "bf16-12bit").value();
  }
};

TEST(PackIn12Bits, ExpertsAreThoseOfBf16BitByBit) {
  for (const auto& [hidden, ffn] : {std::pair<int64_t, int64_t>{72, 37}, {320, 1100}, {6000, 70}}) {
    const TwoPacks packs({.architecture = "MixtralForCausalLM",
                          .dtype = hidden == 320 ? DType::kF32 : DType::kBF16,
                          .hidden = hidden,
                          .ffn = ffn,
                          .experts = 2,
                          .layers = 1});
    const ExpertLayout a(hidden, ffn, DType::kBF16), b(hidden, ffn, kNarrow);
    ASSERT_EQ(a.tiles(), b.tiles());
    for (const uint32_t expert : {0u, 1u}) {
      const auto from = blob_of(packs.dir / "bf16", packs.wide,
                                  *packs.wide.expert_blob(MoeLayerId(0), ExpertId(expert), DType::kBF16));
      const auto to = blob_of(packs.dir / "bf16-12bit", packs.narrow,
                                *packs.narrow.expert_blob(MoeLayerId(0), ExpertId(expert), kNarrow));
      for (int64_t i = 0; i < a.tiles(); ++i) {
        const ExpertTile s = a.tile(i), t = b.tile(i);
        const std::byte *x = from.data() + s.offset, *y = to.data() + t.offset;
        EXPECT_EQ(widened(y + t.gate, y + t.gate_scales, t.ffn, hidden), plain(x + s.gate, s.ffn, hidden))
            << "gate of tile " << i;
        EXPECT_EQ(widened(y + t.up, y + t.up_scales, t.ffn, hidden), plain(x + s.up, s.ffn, hidden))
            << "up of tile " << i;
        EXPECT_EQ(widened(y + t.down, y + t.down_scales, hidden, t.ffn), plain(x + s.down, hidden, s.ffn))
            << "down of tile " << i;
        for (int64_t p = t.down_scales + matrix_parameter_bytes(kNarrow, hidden, t.ffn); p < t.bytes; ++p)
          ASSERT_EQ(y[p], std::byte{0}) << "padding of tile " << i;
      }
    }
    if (hidden > 72) EXPECT_LT(b.bytes(), a.bytes()) << "beyond padding";
  }
}

// The head spans slices, whose borders lie within rows.
TEST(PackIn12Bits, MatricesOfProductsAreThoseOfBf16AndTheRestStaysBf16) {
  const TwoPacks packs({.vocab = 20000});
  ASSERT_EQ(packs.wide.tensors.size(), packs.narrow.tensors.size());
  int encoded = 0, exceptions = 0;
  for (size_t i = 0; i < packs.wide.tensors.size(); ++i) {
    const PackedTensor &w = packs.wide.tensors[i], &n = packs.narrow.tensors[i];
    const auto from = blob_of(packs.dir / "bf16", packs.wide, w.blob),
               to = blob_of(packs.dir / "bf16-12bit", packs.narrow, n.blob);
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < w.shape.size(); ++d) rows *= w.shape[d];
    const int64_t cols = w.shape.back();
    const std::byte* values = to.data() + n.offset;
    if (n.dtype == DType::kBF16) {
      EXPECT_TRUE(n.name == "embed.weight" || n.shape.size() == 1 || n.name.ends_with("router.weight") ||
                  n.name.ends_with("shared_gate.weight"))
          << n.name;
      EXPECT_EQ(plain(values, rows, cols), plain(from.data() + w.offset, rows, cols)) << n.name;
      continue;
    }
    ASSERT_EQ(n.dtype, kNarrow) << n.name;
    const std::byte* exponents = values + dense_parameters_offset(kNarrow, rows, cols);
    EXPECT_EQ(widened(values, exponents, rows, cols), plain(from.data() + w.offset, rows, cols)) << n.name;
    ++encoded, exceptions += bf16_in_12::read_exponents(exponents, rows * cols).count > 0;
  }
  EXPECT_GE(encoded, 5) << "q, k, v, o and the head";
  EXPECT_GE(exceptions, 5);
}

TEST(PackIn12Bits, NumbersOfAllMagnitudesAreRefusedByName) {
  for (const char* where : {"lm_head.weight", "model.layers.1.mlp.experts.2.down_proj.weight"}) {
    const TemporaryDirectory dir;
    const auto spread = [&](const std::string& name, int64_t i) {
      return name == where ? std::ldexp(1.0f, -static_cast<int>(i % 100)) : 0.5f;
    };
    write_checkpoint(dir / "src", {.value = spread});
    const auto packed = pack_checkpoint(dir / "src", dir / "pack", {.experts = {kNarrow}, .dense = kNarrow}, {});
    EXPECT_EQ(packed.status().code(), Code::kUnsupported);
    EXPECT_THAT(packed.status().message(),
                HasSubstr("tensor '" + std::string(where) + "' has numbers of too many magnitudes for bf16-12bit"));
    EXPECT_FALSE(std::filesystem::exists(dir / "pack" / "manifest"));
  }
}

// Bytes that are wrong and whose checksum is right: whoever wrote the pack wrote them so.
TEST(PackIn12Bits, ExponentsOfNumbersThatAreNoneAreFoundBehindTheirChecksums) {
  const TwoPacks packs({});
  const auto pack = packs.dir / "bf16-12bit";
  const auto expert = model::describe_model(packs.narrow.config_json, "").value().spec.moe().expert;
  const ExpertTile t = ExpertLayout(expert.hidden, expert.ffn, kNarrow).tile(0);
  const auto error_with = [&](uint64_t at, uint8_t byte) {
    Manifest m = packs.narrow;
    Slice& slice = m.blobs[*m.expert_blob(MoeLayerId(0), ExpertId(1), kNarrow)].slices.front();
    const std::string name = m.files[slice.file], before = testing::read_text(pack / name);
    std::string bytes = before;
    bytes[slice.offset + at] = static_cast<char>(byte);
    slice.xxh3_64 = XXH3_64bits(bytes.data() + slice.offset, slice.length);
    testing::write_text(pack / name, bytes);
    const auto report = verify_pack(pack, m, 2, {});
    testing::write_text(pack / name, before);
    return report->first_error.message();
  };
  const auto gate = static_cast<uint64_t>(t.gate_scales), down = static_cast<uint64_t>(t.down_scales);
  EXPECT_THAT(error_with(gate + 3, 0xff),
              HasSubstr("gate: the exponent of code 3 is that of numbers that are infinite or not numbers"));
  EXPECT_EQ(error_with(gate + 3, 0xfe), "") << "wrong, but numbers";
  const int64_t numbers = expert.hidden * t.ffn, room = bf16_in_12::exceptions_max(numbers);
  const auto last = down + static_cast<uint64_t>(bf16_in_12::exponents_bytes(expert.hidden, t.ffn)) - 1;
  EXPECT_THAT(error_with(last, 0xff),
              HasSubstr("down: the exponent of exception " + std::to_string(room - 1) + " is that of"));
  EXPECT_EQ(error_with(static_cast<uint64_t>(t.up), 0xff), "")
      << "a sign and a mantissa, any bits of which are of numbers";
}

}  // namespace
}  // namespace moestro::store
