#include "common/config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/config/box_config.h"

namespace moestro::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class SchemaTest : public testing::Test {
 protected:
  std::string error_of(std::string_view key, std::string_view text, std::string_view where = "here") {
    const Status status = schema_.set(key, text, where);
    return status.is_ok() ? "" : status.message();
  }
  BoxConfig box_;
  Schema schema_ = box_schema(box_);
};

TEST_F(SchemaTest, EveryKindIsReadIntoItsField) {
  ASSERT_EQ(error_of("store.dram", "4GiB"), "");
  ASSERT_EQ(error_of("store.io", "pread"), "");
  ASSERT_EQ(error_of("store.poison_freed", "true"), "");
  ASSERT_EQ(error_of("workers.count", "3"), "");
  ASSERT_EQ(error_of("workers.threads", "7"), "");
  ASSERT_EQ(error_of("run.drain", "5s"), "");
  ASSERT_EQ(error_of("model.pack", "a b/c"), "");
  EXPECT_EQ(box_.store.dram, Bytes{4ull << 30});
  EXPECT_EQ(box_.store.io, "pread");
  EXPECT_TRUE(box_.store.poison_freed);
  EXPECT_EQ(box_.workers.count, 3);
  EXPECT_EQ(box_.workers.threads, 7);
  EXPECT_EQ(box_.run.drain, std::chrono::seconds(5));
  EXPECT_EQ(box_.model.pack, "a b/c");
}

TEST_F(SchemaTest, NumbersWithAFraction) {
  ASSERT_EQ(error_of("workers.capacity_factor", "1.25"), "");
  EXPECT_EQ(box_.workers.capacity_factor, 1.25);
  EXPECT_EQ(schema_.get("workers.capacity_factor"), "1.25");
  for (const char* bad : {"", "x", "nan", "inf", "1.25x", "1,25"})
    EXPECT_EQ(error_of("workers.capacity_factor", bad),
              "here: workers.capacity_factor: '" + std::string(bad) + "' is not a number");
  for (const char* bad : {"0", "-1", "1e300"})
    EXPECT_THAT(error_of("workers.capacity_factor", bad), HasSubstr("is not above 0 and at most 1048576"));
  EXPECT_EQ(box_.workers.capacity_factor, 1.25);
  ASSERT_EQ(error_of("workers.capacity_factor", "auto"), "");
  EXPECT_FALSE(box_.workers.capacity_factor.has_value());
}

TEST_F(SchemaTest, SharesOfLowCopies) {
  for (const char* key : {"workers.mixed_max_share", "orchestrator.mixed_warn_share"}) {
    EXPECT_EQ(schema_.get(key), "auto");
    EXPECT_EQ(error_of(key, "0.25"), "");
    EXPECT_EQ(error_of(key, "1"), "");
    EXPECT_THAT(error_of(key, "nan"), HasSubstr("'nan' is not a number"));
    for (const char* bad : {"0", "-0.5", "1.01"})
      EXPECT_THAT(error_of(key, bad), HasSubstr("is not above 0 and at most 1"));
  }
}

TEST_F(SchemaTest, AutoTakesAValueBack) {
  ASSERT_EQ(error_of("store.dram", "4GiB"), "");
  ASSERT_EQ(error_of("store.dram", "auto"), "");
  EXPECT_FALSE(box_.store.dram.has_value());
  ASSERT_EQ(error_of("workers.threads", "auto"), "");
  EXPECT_FALSE(box_.workers.threads.has_value());
}

TEST_F(SchemaTest, ErrorsNamePlaceKeyValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of("workers.count", "0"), "here: workers.count: '0' is below the smallest allowed, 1");
  EXPECT_EQ(error_of("workers.count", "65"), "here: workers.count: '65' is above the largest allowed, 64");
  EXPECT_EQ(error_of("workers.count", "two"), "here: workers.count: 'two' is not a whole number");
  EXPECT_EQ(error_of("workers.count", "1.5"), "here: workers.count: '1.5' is not a whole number");
  EXPECT_EQ(error_of("workers.count", "auto"), "here: workers.count: 'auto' is not a whole number");
  EXPECT_EQ(error_of("workers.count", "99999999999999999999"),
            "here: workers.count: '99999999999999999999' is too large");
  EXPECT_EQ(error_of("store.dram", "1K"), "here: store.dram: '1K' is below the smallest allowed, 4KiB");
  EXPECT_THAT(error_of("store.dram", "4 GiBs"), HasSubstr("is not a size"));
  EXPECT_EQ(error_of("run.drain", "48h"), "here: run.drain: '48h' is above the largest allowed, 24h");
  EXPECT_EQ(error_of("store.io", "mmap"), "here: store.io: 'mmap' is not one of: auto, uring, pread");
  EXPECT_EQ(error_of("store.poison_freed", "yes"),
            "here: store.poison_freed: 'yes' is neither true nor false");
  EXPECT_THAT(error_of("model.name", "a\nb"), HasSubstr("line break"));
}

TEST_F(SchemaTest, AFlagIsNamedAsItWasWritten) {
  EXPECT_EQ(error_of("store.dram", "1K", "--dram"), "--dram: '1K' is below the smallest allowed, 4KiB");
}

TEST_F(SchemaTest, AnErrorLeavesTheFieldAsItWas) {
  ASSERT_EQ(error_of("workers.count", "3"), "");
  ASSERT_NE(error_of("workers.count", "1000"), "");
  EXPECT_EQ(box_.workers.count, 3);
}

TEST_F(SchemaTest, UnknownKeysAreRefusedWithAGuess) {
  EXPECT_EQ(error_of("store.drm", "4GiB"), "here: unknown key 'store.drm'; did you mean 'store.dram'?");
  EXPECT_EQ(error_of("store.completely_else", "1"),
            "here: unknown key 'store.completely_else'; `moestro config --reference` lists all keys");
  EXPECT_THAT(error_of(std::string(100'000, 'x'), "1"), StartsWith("here: unknown key 'xxx"));
}

TEST_F(SchemaTest, DefaultsReadBack) {
  for (const Row& row : schema_.rows()) EXPECT_EQ(error_of(row.key, row.default_text), "") << row.key;
}

TEST_F(SchemaTest, EveryFlagHasAThemeAndAHelpWithoutAStop) {
  for (const Row& row : schema_.rows()) {
    EXPECT_EQ(std::ranges::count(box_themes(), row.theme), 1) << row.key;
    EXPECT_FALSE(row.help.empty() || row.help.ends_with('.')) << row.key;
    EXPECT_EQ(row.value_text().empty(), row.is_flag()) << row.key;
  }
}

TEST_F(SchemaTest, FlagsAreUnique) {
  for (const Row& a : schema_.rows())
    for (const Row& b : schema_.rows())
      if (&a != &b && !a.flag.empty()) EXPECT_NE(a.flag, b.flag);
}

}  // namespace
}  // namespace moestro::config
