// A pack that is not as it was written: each damage gets one clear error.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "common/expert_layout.h"
#include "common/model/model_spec.h"
#include "store/pack/copied_files.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "store/pack/verify.h"
#include "store/resident_source.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/support/as_stranger.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using testing::read_text;
using testing::write_text;

class DamagedPack : public ::testing::Test {
 protected:
  DamagedPack() {
    testing::write_checkpoint(dir_ / "src", {});
    const auto packed = pack_checkpoint(dir_ / "src", dir_ / "pack", {.experts = {DType::kBF16, DType::kInt8}}, {});
    MOESTRO_CHECK(packed.is_ok(), packed.status().message());
  }
  std::filesystem::path pack() const { return dir_ / "pack"; }
  std::string open_error() const { return open_pack(pack()).status().message(); }

  testing::TemporaryDirectory dir_;
};

TEST_F(DamagedPack, OneThatThisUserMayNotReadIsNotMissing) {
  namespace fs = std::filesystem;
  fs::permissions(dir_.path(), fs::perms(0755));
  const std::string open_it = "let its owner run: chmod -R a+rX " + pack().string();
  const auto closed = [&](const fs::path& path) {
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::none);
    Status status;
    {
      const test::AsStranger stranger;
      status = open_pack(pack()).status();
    }
    fs::permissions(path, before);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << "another try cannot help";
    return status.message();
  };
  EXPECT_THAT(closed(pack()), HasSubstr(open_it));
  EXPECT_THAT(closed(pack() / "manifest"), HasSubstr(open_it));
  EXPECT_THAT(closed(pack() / "experts-int8-000.bin"), HasSubstr(open_it));
  EXPECT_THAT(closed(dir_.path()), HasSubstr("may not enter " + dir_.path().string()));
  {
    const test::AsStranger stranger;
    EXPECT_TRUE(open_pack(pack())) << open_error();
  }
}

TEST_F(DamagedPack, OneFlippedByteAnywhereIsFound) {
  for (const char* name : {"dense.bin", "experts-bf16-000.bin", "experts-int8-000.bin"}) {
    const std::string good = read_text(pack() / name);
    for (size_t at = 17; at < good.size(); at += good.size() / 7) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      write_text(pack() / name, bad);
      const auto m = open_pack(pack());
      ASSERT_TRUE(m) << "opening reads no weights";
      const auto report = verify_pack(pack(), *m, 2, {});
      ASSERT_TRUE(report);
      EXPECT_EQ(report->blobs_bad, 1u);
      EXPECT_EQ(report->first_error.code(), Code::kCorrupt);
      EXPECT_THAT(report->first_error.message(), HasSubstr(name));
      const auto source = ResidentSource::open(pack());
      ASSERT_FALSE(source);
      EXPECT_EQ(source.status().code(), Code::kCorrupt);
    }
    write_text(pack() / name, good);
  }
  EXPECT_EQ(verify_pack(pack(), *open_pack(pack()), 1, {})->blobs_bad, 0u);
}

// Bytes that are wrong and whose checksum is right: whoever wrote the pack wrote them so.
TEST_F(DamagedPack, NumbersThatAreNoneAreFoundBehindTheirChecksums) {
  const Manifest good = open_pack(pack()).value();
  const auto expert = model::describe_model(good.config_json, "").value().spec.moe().expert;
  const auto error_after = [&](uint32_t blob, uint64_t at, uint16_t bits) {
    Manifest m = good;
    for (Slice& slice : m.blobs[blob].slices) {
      if (at >= slice.length) {
        at -= slice.length;
        continue;
      }
      const std::string name = m.files[slice.file], before = read_text(pack() / name);
      std::string bytes = before;
      std::memcpy(bytes.data() + slice.offset + at, &bits, 2);
      slice.xxh3_64 = XXH3_64bits(bytes.data() + slice.offset, slice.length);
      write_text(pack() / name, bytes);
      const auto report = verify_pack(pack(), m, 2, {});
      write_text(pack() / name, before);
      EXPECT_EQ(report->blobs_bad, report->first_error.is_ok() ? 0u : 1u);
      return report->first_error.message();
    }
    return std::string("no such byte");
  };
  constexpr uint16_t kNan = 0x7fc0, kInfinity = 0x7f80, kHuge = 0x7f00, kPlain = 0x3f80;
  const uint32_t int8 = *good.expert_blob(MoeLayerId(1), ExpertId(2), DType::kInt8),
                 bf16 = *good.expert_blob(MoeLayerId(0), ExpertId(1), DType::kBF16);
  const ExpertTile q = ExpertLayout(expert.hidden, expert.ffn, DType::kInt8).tile(0),
                   b = ExpertLayout(expert.hidden, expert.ffn, DType::kBF16).tile(0);
  const auto int8_at = [&](int64_t part) { return static_cast<uint64_t>(q.offset + part); };
  for (const uint16_t bits : {kNan, kInfinity, kHuge}) {
    EXPECT_THAT(error_after(int8, int8_at(q.gate_scales + 2 * 3), bits),
                HasSubstr("gate: the scale or offset of group 3 gives numbers"));
    EXPECT_THAT(error_after(int8, int8_at(q.down_scales), bits), HasSubstr("down: the scale or offset of group 0"));
  }
  EXPECT_EQ(error_after(int8, int8_at(q.up_scales), kPlain), "") << "wrong, but a number";
  EXPECT_EQ(error_after(int8, int8_at(q.gate), kNan), "") << "two values, any bits of which are numbers";
  EXPECT_THAT(error_after(bf16, static_cast<uint64_t>(b.offset + b.up + 2 * 7), kInfinity),
              HasSubstr("up: value 7 is infinite or not a number"));
  EXPECT_EQ(error_after(bf16, static_cast<uint64_t>(b.offset + b.up + 2 * 7), kHuge), "");
  for (const PackedTensor& t : good.tensors)
    EXPECT_THAT(error_after(t.blob, t.offset + 2, kNan), HasSubstr(t.name + ": value 1 is infinite or not a number"));
}

TEST_F(DamagedPack, OneFlippedByteInACopiedFileIsFound) {
  EXPECT_TRUE(check_copied_files(pack()).is_ok());
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json"}) {
    const std::string good = read_text(pack() / name);
    for (const std::string& bad :
         {std::string(1, static_cast<char>(good[0] ^ 1)) + good.substr(1), good + "\n", std::string()}) {
      write_text(pack() / name, bad);
      const auto report = verify_pack(pack(), *open_pack(pack()), 1, {});
      ASSERT_TRUE(report);
      EXPECT_EQ(report->copied_bad, 1u);
      EXPECT_EQ(report->blobs_bad, 0u);
      for (const Status& status : {report->first_error, check_copied_files(pack())}) {
        EXPECT_EQ(status.code(), Code::kCorrupt);
        EXPECT_THAT(status.message(), HasSubstr(std::string(name) + ": is not as it was packed"));
      }
    }
    std::filesystem::remove(pack() / name);
    EXPECT_EQ(check_copied_files(pack()).code(), Code::kNotFound);
    write_text(pack() / name, good);
  }
  EXPECT_TRUE(check_copied_files(pack()).is_ok());
  std::filesystem::remove(pack() / "manifest");
  EXPECT_TRUE(check_copied_files(pack()).is_ok()) << "no pack, nothing to compare with";
}

TEST_F(DamagedPack, FilesThatAreShortLongOrGone) {
  const std::string good = read_text(pack() / "experts-bf16-000.bin");
  write_text(pack() / "experts-bf16-000.bin", good.substr(0, good.size() - 1));
  EXPECT_THAT(open_error(), HasSubstr("experts-bf16-000.bin: has"));
  write_text(pack() / "experts-bf16-000.bin", good + "x");
  EXPECT_THAT(open_error(), HasSubstr("the manifest says"));
  std::filesystem::remove(pack() / "experts-bf16-000.bin");
  EXPECT_THAT(open_error(), HasSubstr("no such file"));
}

TEST_F(DamagedPack, NoManifest) {
  std::filesystem::remove(pack() / "manifest");
  EXPECT_THAT(open_error(), HasSubstr("not a pack"));
  EXPECT_THAT(open_pack(dir_ / "absent").status().message(), HasSubstr("no such directory"));
}

TEST_F(DamagedPack, ManifestOfAnotherModel) {
  Manifest m = open_pack(pack()).value();
  const auto write = [&](const Manifest& changed) {
    const auto bytes = serialise_manifest(changed);
    write_text(pack() / "manifest", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  Manifest changed = m;
  changed.config_json = testing::synthetic_config({.vocab = 41});
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("tensor embed.weight is missing or has another shape"));
  changed.config_json = testing::synthetic_config({.ffn = 300});
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("size of the experts differs from its config.json"));
  changed.config_json = "{}";
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("architectures"));
  changed = m;
  changed.tensors.pop_back();
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("head.weight is missing"));
  changed = m;
  changed.blobs[0].slices[0].directory = 1;
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("in two directories"));
  changed.blobs[0].slices[0].directory = 64;
  write(changed);
  EXPECT_THAT(open_error(), HasSubstr("directory of a slice"));
}

}  // namespace
}  // namespace moestro::store
