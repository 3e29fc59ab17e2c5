#include "common/config/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::config {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Units, SizesInPowersOf1024AndOf1000) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"17B", 17},
      {"1K", 1024},
      {"1KiB", 1024},
      {"1KB", 1000},
      {"512M", 512u << 20},
      {"512MiB", 512u << 20},
      {"4G", 4ull << 30},
      {"4GiB", 4ull << 30},
      {"4GB", 4000000000},
      {"2T", 2ull << 40},
      {"1TB", 1000000000000},
      {"1.5G", 3ull << 29},
      {"4 GiB", 4ull << 30},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<uint64_t> size = parse_size(text);
    ASSERT_TRUE(size.is_ok()) << text << ": " << size.status().message();
    EXPECT_EQ(*size, bytes) << text;
  }
}

TEST(Units, WhatIsNoSizeIsRefusedByName) {
  for (const char* text : {"", "GiB", "-1", "+1", "4gb", "4 Gib", "4GiBs", "1e9", ".5G", "5.", "1.2.3G",
                           "0x10", "4G ", " 4G", "nan", "4Gi"}) {
    const Result<uint64_t> size = parse_size(text);
    ASSERT_FALSE(size.is_ok()) << text;
    EXPECT_EQ(size.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(size.status().message(), HasSubstr("'" + std::string(text) + "'"));
    EXPECT_THAT(size.status().message(), HasSubstr("4GiB"));
  }
}

TEST(Units, SizesThatDoNotFitAreRefusedNotWrapped) {
  for (const char* text : {"9223372036854775808", "18446744073709551616", "8388608T",
                           "99999999999999999999999G", "9000000000.5G"}) {
    const Result<uint64_t> size = parse_size(text);
    ASSERT_FALSE(size.is_ok()) << text;
    EXPECT_THAT(size.status().message(), HasSubstr("too large"));
  }
  EXPECT_EQ(*parse_size("9223372036854775807"), uint64_t{INT64_MAX});
}

TEST(Units, SizesAreWrittenSoThatTheyReadBack) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{1024}, uint64_t{1536} << 20,
                               uint64_t{4} << 30, uint64_t{INT64_MAX}})
    EXPECT_EQ(*parse_size(format_size(bytes)), bytes);
  EXPECT_EQ(format_size(4ull << 30), "4GiB");
  EXPECT_EQ(format_size(1536ull << 20), "1536MiB");
}

TEST(Units, ReadableSizes) {
  EXPECT_EQ(readable_size(512), "512 B");
  EXPECT_EQ(readable_size(17 << 20), "17.0 MiB");
  EXPECT_EQ(readable_size(3ull << 29), "1.50 GiB");
}

TEST(Units, Durations) {
  EXPECT_EQ(*parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(*parse_duration("30s"), milliseconds(30'000));
  EXPECT_EQ(*parse_duration("1.5min"), milliseconds(90'000));
  EXPECT_EQ(*parse_duration("2h"), milliseconds(7'200'000));
  for (const char* text : {"", "30", "30 sec", "30m", "-1s", "4GiB"}) {
    const Result<milliseconds> duration = parse_duration(text);
    ASSERT_FALSE(duration.is_ok()) << text;
    EXPECT_THAT(duration.status().message(), HasSubstr("is not a duration"));
  }
  for (const int64_t ms : {0, 1, 999, 1000, 60'000, 90'000, 3'600'000})
    EXPECT_EQ(*parse_duration(format_duration(milliseconds(ms))), milliseconds(ms));
}

}  // namespace
}  // namespace moestro::config
