// Packs over several directories.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "store/pack/packer.h"
#include "store/pack/shards.h"
#include "store/pack/slice_reader.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_directory;

class Spread : public ::testing::Test {
 protected:
  Spread() { testing::write_checkpoint(dir_ / "src", {.hidden = 256, .ffn = 512, .experts = 6, .layers = 3}); }
  Result<PackSummary> pack(const std::string& to, std::vector<PackDirectory> spread, uint32_t own_share = 1) {
    PackOptions options;
    options.spread = std::move(spread), options.own_share = own_share;
    options.model_name = "m";
    options.file_bytes_max = 3 << 20;
    return pack_checkpoint(dir_ / "src", dir_ / to, options, {});
  }
  static std::vector<std::vector<std::byte>> contents(const fs::path& pack, const Manifest& manifest) {
    std::vector<std::vector<std::byte>> blobs;
    const auto reader = SliceReader::open(pack, manifest);
    for (uint32_t b = 0; b < manifest.blobs.size(); ++b) {
      blobs.emplace_back(manifest.blobs[b].length);
      EXPECT_TRUE(reader && reader->read_blob(b, blobs.back()).is_ok());
    }
    return blobs;
  }
  testing::TemporaryDirectory dir_;
};

TEST_F(Spread, HoldsTheSameBlobsInProportionToTheShares) {
  ASSERT_TRUE(pack("one", {}));
  const auto spread = pack("many", {{dir_ / "b", 3}, {dir_ / "c", 2}});
  ASSERT_TRUE(spread) << spread.status().message();
  const auto one = open_pack(dir_ / "one"), many = open_pack(dir_ / "many");
  ASSERT_TRUE(one && many) << many.status().message();
  EXPECT_EQ(contents(dir_ / "one", *one), contents(dir_ / "many", *many));
  const auto use = shard_use(dir_ / "many", *many);
  ASSERT_EQ(use.size(), 3u);
  EXPECT_EQ(use[1].leads_to, dir_ / "b");
  const double total = static_cast<double>(use[0].bytes + use[1].bytes + use[2].bytes);
  EXPECT_NEAR(static_cast<double>(use[0].bytes) / total, 1.0 / 6, 0.05);
  EXPECT_NEAR(static_cast<double>(use[1].bytes) / total, 3.0 / 6, 0.05);
  EXPECT_NEAR(static_cast<double>(use[2].bytes) / total, 2.0 / 6, 0.05);
  const auto report = verify_pack(dir_ / "many", *many, 2, {});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->first_error) << report->first_error.message();
  EXPECT_FALSE(fs::exists(dir_ / "many" / kSharesName));
}

TEST_F(Spread, MissingDirectoryIsOneClearErrorAndANewLinkMendsIt) {
  ASSERT_TRUE(pack("p", {{dir_ / "b", 1}}));
  fs::rename(dir_ / "b", dir_ / "elsewhere");
  const Status missing = open_pack(dir_ / "p").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(
      missing.message(),
      HasSubstr((dir_ / "b").string() + ", which is not there: mount that drive, or say where it is now with ln -sfn"));
  fs::remove(dir_ / "p" / "shard-1");
  fs::create_directory_symlink(dir_ / "elsewhere", dir_ / "p" / "shard-1");
  EXPECT_TRUE(open_pack(dir_ / "p"));
}

TEST_F(Spread, DamageOnAnotherDriveIsFoundAndNamed) {
  ASSERT_TRUE(pack("p", {{dir_ / "b", 1}}));
  const auto manifest = open_pack(dir_ / "p");
  ASSERT_TRUE(manifest);
  const auto directories = file_directories(*manifest);
  const size_t file = static_cast<size_t>(std::find(directories.begin(), directories.end(), 1u) - directories.begin());
  ASSERT_LT(file, directories.size());
  {
    std::fstream damaged(dir_ / "b" / manifest->files[file], std::ios::in | std::ios::out | std::ios::binary);
    const int byte = damaged.get();
    damaged.seekp(0);
    damaged.put(static_cast<char>(byte ^ 1));
  }
  const auto report = verify_pack(dir_ / "p", *manifest, 1, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->blobs_bad, 1u);
  EXPECT_THAT(report->first_error.message(), HasSubstr("shard-1/" + manifest->files[file]));
  fs::resize_file(dir_ / "b" / manifest->files[file], 4096);
  EXPECT_EQ(open_pack(dir_ / "p").status().code(), Code::kCorrupt);
}

TEST_F(Spread, RefusesDirectoriesThatAreNotItsOwn) {
  fs::create_directory(dir_ / "full");
  testing::write_text(dir_ / "full" / "experts-of-mine.txt", "x");
  const Status full = pack("p", {{dir_ / "full", 1}}).status();
  EXPECT_EQ(full.code(), Code::kInvalidArgument);
  EXPECT_THAT(full.message(), HasSubstr("is not empty"));
  EXPECT_THAT(pack("q", {{dir_ / "b", 1}, {dir_ / "b", 1}}).status().message(), HasSubstr("given twice"));
  EXPECT_THAT(pack("r", {{dir_ / "r", 1}}).status().message(), HasSubstr("given twice"));
}

TEST_F(Spread, UnfinishedOneGoesOnWithTheSharesItBeganWith) {
  ASSERT_TRUE(pack("whole", {{dir_ / "w", 3}}));
  PackOptions options;
  options.spread = {{dir_ / "b", 3}};
  options.model_name = "m", options.file_bytes_max = 3 << 20, options.commit_bytes = 1;
  int seen = 0;
  const PackObserver stop_half_way{[&](uint64_t, uint64_t) { if (++seen == 12) throw std::bad_alloc(); }, {}};
  EXPECT_FALSE(pack_checkpoint(dir_ / "src", dir_ / "p", options, stop_half_way));
  ASSERT_TRUE(fs::exists(dir_ / "p" / kSharesName));
  EXPECT_THAT(pack("p", {{dir_ / "c", 1}}).status().message(), HasSubstr("spread over other directories"));
  options.spread[0].share = 1000;  // measured anew
  const auto again = pack_checkpoint(dir_ / "src", dir_ / "p", options, {});
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_GT(again->resumed_bytes, 0u);
  EXPECT_EQ(read_directory(dir_ / "b"), read_directory(dir_ / "w"));
}

}  // namespace
}  // namespace moestro::store
