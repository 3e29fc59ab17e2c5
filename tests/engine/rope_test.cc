#include "services/worker/engine/rope_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace moestro::engine {
namespace {

using model::RopeSpec;
using Scaling = RopeSpec::Scaling;

constexpr int64_t kDim = 16;

RopeSpec spec(Scaling scaling, double factor = 4, int64_t original = 64) {
  RopeSpec r;
  r.rotary_dim = kDim;
  r.scaling = scaling;
  r.factor = factor;
  r.original_max_position = original;
  return r;
}

double plain(double theta, int64_t j) { return std::pow(theta, -2.0 * static_cast<double>(j) / kDim); }

TEST(Rope, PlainAndLinear) {
  const auto inv = inverse_frequencies(spec(Scaling::kNone), 1);
  const auto linear = inverse_frequencies(spec(Scaling::kLinear), 1);
  ASSERT_EQ(inv.size(), static_cast<size_t>(kDim / 2));
  for (size_t j = 0; j < inv.size(); ++j) {
    EXPECT_NEAR(inv[j], plain(10000, static_cast<int64_t>(j)), 1e-6 * inv[j]);
    EXPECT_FLOAT_EQ(linear[j], inv[j] / 4);
  }
}

TEST(Rope, TablesAreCosinesAndSines) {
  const RopeTables tables(spec(Scaling::kNone), 100);
  for (const int64_t p : {0, 1, 99})
    for (int64_t j = 0; j < kDim / 2; ++j) {
      EXPECT_NEAR(tables.cos(p)[static_cast<size_t>(j)], std::cos(static_cast<double>(p) * plain(10000, j)), 1e-5);
      EXPECT_NEAR(tables.sin(p)[static_cast<size_t>(j)], std::sin(static_cast<double>(p) * plain(10000, j)), 1e-5);
    }
}

TEST(Rope, DynamicGrowsItsBaseWithThePosition) {
  const RopeSpec r = spec(Scaling::kDynamic);
  const RopeTables tables(r, 200);
  for (const int64_t p : {0, 63, 64, 65, 199}) {
    const double length = std::max<double>(static_cast<double>(p + 1), 64);
    const double base = 10000 * std::pow(4 * length / 64 - 3, static_cast<double>(kDim) / (kDim - 2));
    for (int64_t j = 0; j < kDim / 2; ++j)
      EXPECT_NEAR(tables.cos(p)[static_cast<size_t>(j)], std::cos(static_cast<double>(p) * plain(base, j)), 5e-5)
          << p << " " << j;
  }
}

TEST(Rope, Llama3LeavesHighFrequenciesAndScalesLowOnes) {
  RopeSpec r = spec(Scaling::kLlama3, 8, 64);
  r.theta = 500000;
  const auto inv = inverse_frequencies(r, 1);
  int kept = 0, scaled = 0, between = 0;
  for (int64_t j = 0; j < kDim / 2; ++j) {
    const double f = plain(r.theta, j), wave = 2 * std::numbers::pi / f, got = inv[static_cast<size_t>(j)];
    if (wave < 64.0 / 4) {
      EXPECT_NEAR(got, f, 1e-6 * f);
      ++kept;
    } else if (wave > 64.0 / 1) {
      EXPECT_NEAR(got, f / 8, 1e-6 * f);
      ++scaled;
    } else {
      const double smooth = (64 / wave - 1) / (4 - 1);
      EXPECT_NEAR(got, (1 - smooth) * f / 8 + smooth * f, 1e-5 * f);
      ++between;
    }
  }
  EXPECT_TRUE(kept > 0 && scaled > 0 && between > 0) << kept << " " << between << " " << scaled;
}

TEST(Rope, YarnRampsBetweenItsCorrectionDimensions) {
  RopeSpec r = spec(Scaling::kYarn, 4, 256);
  const auto inv = inverse_frequencies(r, 1);
  const auto turn = [&](double rotations) {
    return kDim * std::log(256 / (rotations * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  };
  const double low = std::max(0.0, std::floor(turn(32))), high = std::min<double>(kDim - 1, std::ceil(turn(1)));
  for (int64_t j = 0; j < kDim / 2; ++j) {
    const double f = plain(10000, j), ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(inv[static_cast<size_t>(j)], f / 4 * ramp + f * (1 - ramp), 1e-5 * f);
  }
}

TEST(Rope, YarnScalesCosinesByItsAttentionFactor) {
  RopeSpec r = spec(Scaling::kYarn, 4, 256);
  EXPECT_NEAR(attention_factor(r), 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_NEAR(RopeTables(r, 1).cos(0)[0], 0.1 * std::log(4.0) + 1, 1e-6);
  r.mscale = 0.7, r.mscale_all_dim = 0.9;
  EXPECT_NEAR(attention_factor(r), (0.07 * std::log(4.0) + 1) / (0.09 * std::log(4.0) + 1), 1e-12);
  r.attention_factor = 1.25;
  EXPECT_EQ(attention_factor(r), 1.25);
  EXPECT_EQ(attention_factor(spec(Scaling::kLinear)), 1.0);
}

TEST(Rope, LongropeHasOneSetOfFactorsForAllPositions) {
  RopeSpec r = spec(Scaling::kLongrope);
  for (int j = 0; j < kDim / 2; ++j) {
    r.short_factors.push_back(1.0 + 0.25 * j);
    r.long_factors.push_back(2.0 + j);
  }
  r.short_mscale = 1.1, r.long_mscale = 1.3;
  for (const int64_t positions : {64, 65}) {  // the original length, and one more
    const RopeTables tables(r, positions);
    const bool beyond = positions > 64;
    for (const int64_t p : {1, 63, 200}) {  // the last is beyond the table
      std::vector<float> cos, sin;
      tables.append(p, cos, sin);
      for (int j = 0; j < kDim / 2; ++j) {
        const auto at = static_cast<size_t>(j);
        const double angle =
            static_cast<double>(p) * plain(r.theta, j) / (beyond ? r.long_factors : r.short_factors)[at];
        EXPECT_NEAR(cos[at], std::cos(angle) * (beyond ? 1.3 : 1.1), 2e-5);
        EXPECT_NEAR(sin[at], std::sin(angle) * (beyond ? 1.3 : 1.1), 2e-5);
      }
    }
  }
}

}  // namespace
}  // namespace moestro::engine
