#include "store/pack/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/expert_layout.h"
#include "store/pack/manifest_check.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;

/// Two layers of two experts at two precisions, one dense blob. Nothing of it is on disk.
Manifest sample() {
  Manifest m;
  m.layout_id = kExpertLayoutId;
  m.model_name = "sample";
  m.config_json = "{\"a\": 1}";
  m.generation_config_json = "{}";
  m.files = {"dense.bin", "experts-bf16-000.bin", "experts-int8-000.bin"};
  m.expert_precisions = {DType::kBF16, DType::kInt8};
  m.blobs.push_back({BlobKind::kDense, {}, {}, DType::kBF16, 12288, {{0, 0, 0, 8192, 11}, {0, 0, 8192, 4096, 12}}});
  for (uint32_t p = 0; p < 2; ++p)
    for (uint32_t i = 0; i < 4; ++i)
      m.blobs.push_back({BlobKind::kExpert,
                         MoeLayerId(i / 2),
                         ExpertId(i % 2),
                         m.expert_precisions[p],
                         4096,
                         {{0, p + 1, 4096 * i, 4096, 100 * p + i}}});
  m.tensors = {{"embed.weight", DType::kBF16, {10, 32}, 0, 0}, {"norm.weight", DType::kBF16, {32}, 0, 640}};
  m.copied = {{"config.json", 8, 1}, {"tokenizer.json", 3, 2}};
  return m;
}

Status reparse(const std::vector<std::byte>& bytes) { return parse_manifest(bytes.data(), bytes.size()).status(); }

void expect_equal(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.layout_id, b.layout_id);
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(a.config_json, b.config_json);
  EXPECT_EQ(a.generation_config_json, b.generation_config_json);
  EXPECT_EQ(a.files, b.files);
  EXPECT_EQ(a.expert_precisions, b.expert_precisions);
  ASSERT_EQ(a.copied.size(), b.copied.size());
  for (size_t i = 0; i < a.copied.size(); ++i)
    EXPECT_EQ(std::tie(a.copied[i].name, a.copied[i].bytes, a.copied[i].xxh3_64),
              std::tie(b.copied[i].name, b.copied[i].bytes, b.copied[i].xxh3_64));
  ASSERT_EQ(a.blobs.size(), b.blobs.size());
  for (size_t i = 0; i < a.blobs.size(); ++i) {
    const Blob &x = a.blobs[i], &y = b.blobs[i];
    EXPECT_EQ(std::tuple(x.kind, x.moe_layer, x.expert, x.precision, x.length),
              std::tuple(y.kind, y.moe_layer, y.expert, y.precision, y.length));
    ASSERT_EQ(x.slices.size(), y.slices.size());
    for (size_t s = 0; s < x.slices.size(); ++s) {
      const Slice &v = x.slices[s], &w = y.slices[s];
      EXPECT_EQ(std::tuple(v.directory, v.file, v.offset, v.length, v.xxh3_64),
                std::tuple(w.directory, w.file, w.offset, w.length, w.xxh3_64));
    }
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const PackedTensor &x = a.tensors[i], &y = b.tensors[i];
    EXPECT_EQ(std::tie(x.name, x.dtype, x.shape, x.blob, x.offset),
              std::tie(y.name, y.dtype, y.shape, y.blob, y.offset));
  }
}

TEST(Manifest, ComesBackAsItWas) {
  const auto bytes = serialise_manifest(sample());
  const auto back = parse_manifest(bytes.data(), bytes.size());
  ASSERT_TRUE(back) << back.status().message();
  expect_equal(sample(), *back);
  EXPECT_EQ(back->version, kPackVersion);
  EXPECT_NE(back->identity, 0u);
  Manifest other = sample();
  other.blobs[3].slices[0].xxh3_64 ^= 1;
  const auto other_bytes = serialise_manifest(other);
  EXPECT_NE(parse_manifest(other_bytes.data(), other_bytes.size())->identity, back->identity);
}

// The second has the list of copied files, which the first packs did not have. Both have expert layout 1, whose tiles
// of bf16 and int8 are those of today.
TEST(Manifest, VersionOneIsStillRead) {
  Manifest second = sample();
  second.layout_id = 1;
  Manifest first = second;
  first.copied.clear();
  const std::tuple<const char*, Manifest, uint64_t> cases[] = {
      {"manifest_v1.bin", first, 0x1cf3d014671bcbdfu}, {"manifest_v1_copied.bin", second, 0x795411a2059588adu}};
  for (const auto& [name, expected, identity] : cases) {
    const std::string text = testing::read_text(test::source_dir() / "tests/pack/golden" / name);
    ASSERT_FALSE(text.empty()) << name;
    const auto m = parse_manifest(reinterpret_cast<const std::byte*>(text.data()), text.size());
    ASSERT_TRUE(m) << m.status().message();
    expect_equal(expected, *m);
    EXPECT_EQ(m->identity, identity) << name;
  }
}

TEST(Manifest, EveryFlippedByteIsFound) {
  const auto good = serialise_manifest(sample());
  for (size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0x04};
    EXPECT_FALSE(reparse(bad).is_ok()) << "byte " << i;
  }
}

TEST(Manifest, EveryTruncationIsFound) {
  const auto good = serialise_manifest(sample());
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_manifest(good.data(), n)) << n;
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(reparse(longer).message(), HasSubstr("truncated or damaged"));
}

TEST(Manifest, ANewerVersionIsNamed) {
  auto bytes = serialise_manifest(sample());
  bytes[8] = std::byte{7};
  const Status status = reparse(bytes);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("pack version 7; this build reads up to 1"));
}

struct Corruption {
  const char* what;
  std::function<void(Manifest&)> damage;
  const char* says;
};

const Corruption kCorruptions[] = {
    {"layout", [](Manifest& m) { m.layout_id = 3; }, "expert layout 3"},
    {"tiles of narrow blocks before layout 2",
     [](Manifest& m) {
       m.layout_id = 1;
       m.expert_precisions[1] = DType::kQ8_0;
     },
     "expert layout 1; this build reads layout 2; pack the model again"},
    {"the same of mixed experts",
     [](Manifest& m) {
       m.layout_id = 1;
       m.expert_precisions[1] = DType::kMixed;
       m.expert_formats = {{DType::kQ4K, DType::kQ4K, DType::kMXFP4}};
     },
     "expert layout 1"},
    {"file outside", [](Manifest& m) { m.files[1] = "../x"; }, "file name"},
    {"file empty", [](Manifest& m) { m.files[1] = ""; }, "file name"},
    {"file absolute", [](Manifest& m) { m.files[1] = "/etc/passwd"; }, "file name"},
    {"file twice", [](Manifest& m) { m.files[1] = m.files[0]; }, "file name"},
    {"file is the manifest", [](Manifest& m) { m.files[1] = "manifest"; }, "file name"},
    {"copied file outside", [](Manifest& m) { m.copied[0].name = "../config.json"; }, "copied file"},
    {"copied file twice", [](Manifest& m) { m.copied[0].name = m.copied[1].name; }, "copied file"},
    {"copied file of the weights", [](Manifest& m) { m.copied[0].name = m.files[0]; }, "copied file"},
    {"copied file is the manifest", [](Manifest& m) { m.copied[0].name = "manifest"; }, "copied file"},
    {"copied file huge", [](Manifest& m) { m.copied[0].bytes = ~uint64_t{0}; }, "copied file"},
    {"no precisions", [](Manifest& m) { m.expert_precisions.clear(); }, "precisions"},
    {"precision twice", [](Manifest& m) { m.expert_precisions[1] = DType::kBF16; }, "precisions"},
    {"precision unknown", [](Manifest& m) { m.expert_precisions[1] = static_cast<DType>(77); }, "precisions"},
    {"kind unknown", [](Manifest& m) { m.blobs[2].kind = static_cast<BlobKind>(9); }, "kind of blob 2"},
    {"blob precision unknown", [](Manifest& m) { m.blobs[2].precision = static_cast<DType>(99); },
     "precision of blob 2"},
    {"slice empty", [](Manifest& m) { m.blobs[2].slices[0].length = 0; }, "length of a slice"},
    {"slice too long", [](Manifest& m) { m.blobs[2].slices[0].length = (1 << 20) + 4096; }, "length of a slice"},
    {"slice odd", [](Manifest& m) { m.blobs[2].slices[0].length = 4095; }, "length of a slice"},
    {"slice misplaced", [](Manifest& m) { m.blobs[2].slices[0].offset = 100; }, "offset of a slice"},
    {"slice far away", [](Manifest& m) { m.blobs[2].slices[0].offset = ~uint64_t{4095}; }, "offset of a slice"},
    {"slice of no file", [](Manifest& m) { m.blobs[2].slices[0].file = 3; }, "not listed"},
    {"no slices", [](Manifest& m) { m.blobs[2].slices.clear(); }, "length is not that of its slices"},
    {"blob length", [](Manifest& m) { m.blobs[2].length = 8192; }, "length is not that of its slices"},
    {"slices overlap", [](Manifest& m) { m.blobs[2].slices[0].offset = 0; }, "overlap"},
    {"expert missing", [](Manifest& m) { m.blobs.erase(m.blobs.begin() + 3); }, "number of experts"},
    {"experts swapped", [](Manifest& m) { std::swap(m.blobs[1], m.blobs[2]); }, "order of the experts"},
    {"dense among experts", [](Manifest& m) { m.blobs[3].kind = BlobKind::kDense; }, "order of the experts"},
    {"layer huge",
     [](Manifest& m) {
       m.blobs.back().moe_layer = MoeLayerId(UINT32_MAX);
       m.blobs.back().expert = ExpertId(UINT32_MAX);
     },
     "number of experts"},
    {"no experts", [](Manifest& m) { m.blobs.resize(1); }, "no experts"},
    {"nothing",
     [](Manifest& m) {
       m.blobs.clear();
       m.tensors.clear();
     },
     "no experts"},
    {"tensor mixed", [](Manifest& m) { m.tensors[1].dtype = DType::kMixed; }, "format"},
    {"tensor of half a block", [](Manifest& m) { m.tensors[1].dtype = DType::kQ4K; }, "does not fit"},
    {"formats without mixed experts", [](Manifest& m) { m.expert_formats.resize(1); }, "formats of mixed experts"},
    {"mixed experts without formats",
     [](Manifest& m) {
       for (Blob& b : m.blobs)
         if (b.kind == BlobKind::kExpert && b.precision == m.expert_precisions[1]) b.precision = DType::kMixed;
       m.expert_precisions[1] = DType::kMixed;
     },
     "formats of mixed experts"},
    {"tensor twice", [](Manifest& m) { m.tensors[1].name = m.tensors[0].name; }, "given twice"},
    {"tensor nameless", [](Manifest& m) { m.tensors[1].name = ""; }, "name is empty"},
    {"tensor of no format", [](Manifest& m) { m.tensors[1].dtype = static_cast<DType>(99); }, "format"},
    {"vector quantised", [](Manifest& m) { m.tensors[1].dtype = DType::kInt8; }, "does not fit"},
    {"matrix quantised, its scales outside",
     [](Manifest& m) {
       m.tensors[1] = {"head.weight", DType::kInt8, {182, 64}, 0, 640};
     },
     "does not fit"},
    {"tensor in an expert", [](Manifest& m) { m.tensors[1].blob = 1; }, "blob"},
    {"tensor in no blob", [](Manifest& m) { m.tensors[1].blob = 99; }, "blob"},
    {"tensor misplaced", [](Manifest& m) { m.tensors[1].offset = 641; }, "does not fit"},
    {"tensor beyond", [](Manifest& m) { m.tensors[1].offset = 12288; }, "does not fit"},
    {"tensor far beyond", [](Manifest& m) { m.tensors[1].offset = ~uint64_t{63}; }, "does not fit"},
    {"shape empty", [](Manifest& m) { m.tensors[1].shape = {}; }, "does not fit"},
    {"shape zero", [](Manifest& m) { m.tensors[1].shape = {0}; }, "does not fit"},
    {"shape negative", [](Manifest& m) { m.tensors[1].shape = {-1}; }, "does not fit"},
    {"shape overflows",
     [](Manifest& m) {
       m.tensors[1].shape = {int64_t{1} << 40, int64_t{1} << 40};
     },
     "does not fit"},
    {"tensors overlap", [](Manifest& m) { m.tensors[1].offset = 576; }, "tensors overlap"},
};

TEST(Manifest, NumbersThatDoNotAgreeAreFound) {
  for (const Corruption& c : kCorruptions) {
    Manifest m = sample();
    c.damage(m);
    const Status status = reparse(serialise_manifest(m));
    EXPECT_FALSE(status.is_ok()) << c.what;
    EXPECT_THAT(status.message(), HasSubstr(c.says)) << c.what;
  }
}

}  // namespace
}  // namespace moestro::store
