// The policies that know of layers and requests.

#include <gtest/gtest.h>

#include <cmath>

#include "common/policy/activation_policy.h"
#include "common/policy/make_policy.h"
#include "common/policy/weighted_policy.h"

namespace moestro::policy {
namespace {

const uint32_t kGroup = 0;
const Judge take_any = [](uint32_t) { return Verdict{}; };
Wanted any() { return {{&kGroup, 1}, 0}; }

TEST(ActivationPolicy, TheRequestsOwnCountsDecideAndFirstLayersAreFavoured) {
  ActivationPolicy policy({.layers = 4, .experts = 4});
  policy.inserted(0, kGroup, {1}, false), policy.inserted(12, kGroup, {2}, false),
      policy.inserted(13, kGroup, {3}, false);
  policy.used(13, {4});
  EXPECT_EQ(policy.victim(any(), take_any), 12u) << "the last layer's, used once";
  for (int i = 0; i < 8; ++i) policy.used(12, {5.0 + i});
  EXPECT_EQ(policy.victim(any(), take_any), 13u) << "two uses at a quarter are less than one at the first layer";
}

TEST(ActivationPolicy, CountsBeginAnewWithARequest) {
  ActivationPolicy policy({.layers = 1, .experts = 4});
  policy.inserted(0, kGroup, {1}, false), policy.inserted(1, kGroup, {2}, false);
  for (int i = 0; i < 9; ++i) policy.used(0, {3.0 + i});
  policy.sequence_began(1);
  policy.used(1, {20});
  EXPECT_EQ(policy.victim(any(), take_any), 0u);
}

TEST(ActivationPolicy, OfSeveralRequestsOneShareGoes) {
  ActivationPolicy policy({.layers = 1, .experts = 4});
  policy.inserted(0, kGroup, {1}, false), policy.inserted(1, kGroup, {2}, false);
  for (int i = 0; i < 9; ++i) policy.used(0, {3.0 + i});
  policy.sequence_began(2);
  policy.used(1, {20});
  EXPECT_EQ(policy.victim(any(), take_any), 1u) << "half of ten is more than two";
}

TEST(ActivationPolicy, WhatAPrefetchPromisedIsForgottenWhenItDoesNotCome) {
  ActivationPolicy policy({.layers = 1, .experts = 4});
  policy.inserted(0, kGroup, {1}, false);
  policy.inserted(1, kGroup, {2}, true);
  policy.used(0, {3});
  policy.inserted(2, kGroup, {4}, false);
  policy.ruled_out(1);
  EXPECT_EQ(policy.victim(any(), take_any), 1u);
}

TEST(WeightedPolicy, EachPartDecidesAlone) {
  const auto first = [](WeightedOptions options) {
    WeightedPolicy policy(options);
    policy.at_layer(0);
    policy.inserted(0, kGroup, {1, 3}, false);             // often
    policy.inserted(4, kGroup, {2, 1, false, true}, false);  // of low precision, next layer
    policy.at_layer(1), policy.at_layer(0);                // a token later
    policy.inserted(8, kGroup, {3, 2}, false);             // lately, and at high precision
    return policy.victim(any(), take_any);
  };
  EXPECT_EQ(first({3, 4, 1, 0, 0, 0}), 0u) << "of equally old ones the lower key";
  EXPECT_EQ(first({3, 4, 0, 1, 0, 0}), 4u);
  EXPECT_EQ(first({3, 4, 0, 0, 1, 0}), 4u);
  EXPECT_EQ(first({3, 4, 0, 0, 0, 1}), 0u) << "its layer has just been";
}

TEST(WeightedPolicy, OldUsesFadeInALongSequence) {
  const auto first = [](double tokens_max) {
    WeightedPolicy policy({.layers = 1, .experts = 4, .recency = 0, .frequency = 1, .nearness = 0,
                           .tokens_max = tokens_max});
    policy.inserted(0, kGroup, {0}, false), policy.inserted(1, kGroup, {0}, false);
    for (int token = 1; token <= 64; ++token) {
      policy.at_layer(0);
      policy.used(token <= 40 ? 0 : 1, {static_cast<double>(token)});
    }
    return policy.victim(any(), take_any);
  };
  EXPECT_EQ(first(1000), 1u) << "24 uses are fewer than 40";
  EXPECT_EQ(first(16), 0u) << "but they are the latest ones";
}

TEST(WeightedPolicy, RecentUsesAreToldApartInALongSequence) {
  const auto first = [](double tokens_max) {
    WeightedPolicy policy({.layers = 1, .experts = 4, .recency = 0.5, .frequency = 0.5, .nearness = 0,
                           .tokens_max = tokens_max});
    policy.inserted(0, kGroup, {0}, false), policy.inserted(1, kGroup, {0}, false);
    for (int token = 1; token <= 1000; ++token) {
      policy.at_layer(0);
      if (token > 980) policy.used(0, {static_cast<double>(token)});
    }
    policy.at_layer(0);
    policy.used(1, {1001.0});
    for (int token = 0; token < 4; ++token) policy.at_layer(0), policy.used(1, {1002.0 + token});
    return policy.victim(any(), take_any);
  };
  EXPECT_EQ(first(1e9), 1u) << "20 uses outweigh five tokens of a thousand";
  EXPECT_EQ(first(8), 0u);
}

TEST(WeightedPolicy, EntryInConstantUseDoesNotHoldItUp) {
  WeightedPolicy policy({1, 4});
  policy.inserted(0, kGroup, {1}, false), policy.inserted(1, kGroup, {2}, false);
  EXPECT_EQ(policy.victim(any(), [](uint32_t) { return Verdict{Verdict::Kind::kUsed, {5}}; }), std::nullopt);
  EXPECT_EQ(policy.victim(any(),
                          [](uint32_t key) {
                            return Verdict{key == 0 ? Verdict::Kind::kInUse : Verdict::Kind::kTake, {}};
                          }),
            1u);
}

TEST(WeightedPolicy, CalibrationFindsTheWeightsWithTheLeastPenalty) {
  const auto found = calibrate_weights(
      {2, 4}, 4, [](const WeightedOptions& w) { return std::abs(w.recency - 0.25) + std::abs(w.nearness - 0.5); });
  EXPECT_EQ(found.recency, 0.25);
  EXPECT_EQ(found.nearness, 0.5);
  EXPECT_EQ(found.frequency + found.high_frequency, 0.25);
  EXPECT_EQ(found.layers, 2);
}

TEST(DevicePolicies, ByName) {
  for (const std::string& name : device_policy_names()) EXPECT_EQ((*make_device_policy(name, {2, 4}))->name(), name);
  EXPECT_FALSE(make_device_policy("fifo", {2, 4}).is_ok());
}

}  // namespace
}  // namespace moestro::policy
