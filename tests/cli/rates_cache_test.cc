// Rates that `moestro plan` has measured, kept by machine and pack.

#include <gtest/gtest.h>

#include <filesystem>

#include "services/cli/plan/rates_cache.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

TEST(RatesCache, KeepsRatesByTheirKey) {
  namespace fs = std::filesystem;
  TempDir dir;
  planner::Rates rates;
  rates.dense = planner::ProductCurve({{1, 1e-12}, {8, 2e-12}});
  rates.experts = rates.router = rates.dense;
  rates.kv_bytes_per_s = 1e10, rates.attention_operations_per_s = 1e11, rates.call_s = 1e-6, rates.float_s = 1e-9;
  const cli::RatesCache cache(dir.path(), "this \xff");  // a path may be any bytes
  EXPECT_FALSE(cache.read().has_value());
  ASSERT_TRUE(cache.write(rates).is_ok());
  const auto read = cache.read();
  ASSERT_TRUE(read.has_value());
  EXPECT_DOUBLE_EQ(read->experts.seconds(4, 1), rates.experts.seconds(4, 1));
  EXPECT_FALSE(read->drive_bytes_per_s.has_value());
  EXPECT_FALSE(cli::RatesCache(dir.path(), "that").read().has_value());
  fs::copy_file(cache.file(), cli::RatesCache(dir.path(), "that").file());
  EXPECT_FALSE(cli::RatesCache(dir.path(), "that").read().has_value()) << "the key in the file decides";
  write_file(cache.file(), "{}");
  EXPECT_FALSE(cache.read().has_value());
}

}  // namespace
}  // namespace moestro::test
