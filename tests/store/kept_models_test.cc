#include "store/server/kept_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/arena/text_file.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;

const KeptModels kSome{8 << 20,
                       {{"demo", "/srv/a pack"}},
                       {{"demo", "/srv/before", true}, {"demo", "/srv/a pack"}, {"more", "/b"}}};

void expect_same(const KeptModels& a, const KeptModels& b) {
  EXPECT_EQ(a.dram, b.dram);
  for (const auto member : {&KeptModels::started, &KeptModels::served}) {
    ASSERT_EQ((a.*member).size(), (b.*member).size());
    for (size_t i = 0; i < (a.*member).size(); ++i) {
      EXPECT_EQ((a.*member)[i].name, (b.*member)[i].name);
      EXPECT_EQ((a.*member)[i].pack, (b.*member)[i].pack);
      EXPECT_EQ((a.*member)[i].retired, (b.*member)[i].retired);
    }
  }
}

TEST(KeptModels, AreReadAsTheyWereWritten) {
  const testing::TemporaryDirectory dir;
  EXPECT_EQ(read_kept_models(dir.path()).status().code(), Code::kNotFound);
  ASSERT_TRUE(write_kept_models(dir.path(), kSome));
  const auto read = read_kept_models(dir.path());
  ASSERT_TRUE(read) << read.status().message();
  expect_same(*read, kSome);
  remove_kept_models(dir.path());
  EXPECT_EQ(read_kept_models(dir.path()).status().code(), Code::kNotFound);
}

TEST(KeptModels, DamageIsSeen) {
  const std::string text = serialise_kept_models(kSome);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    EXPECT_FALSE(parse_kept_models(other)) << i;
  }
  EXPECT_EQ(parse_kept_models(with_checksum("moestro-models 1\ndram 0\n")).status().code(), Code::kUnsupported);
  EXPECT_THAT(parse_kept_models(with_checksum("moestro-models 2\ndram many\n")).status().message(), HasSubstr("size"));
  EXPECT_THAT(parse_kept_models(with_checksum("moestro-models 2\ndram 0\nserves demo\n")).status().message(),
              HasSubstr("names no model"));
}

TEST(KeptModels, APathWithALineBreakIsRefusedBeforeItIsWritten) {
  EXPECT_TRUE(check_kept_path("/srv/a pack"));
  EXPECT_FALSE(check_kept_path("/srv/a\npack"));
}

}  // namespace
}  // namespace moestro::store
