#include "common/tier/dense_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DenseNeeds needs(std::vector<uint64_t> layers, uint32_t workers = 1) {
  return {.layers = std::move(layers),
          .fixed_bytes = 1000,
          .expert_bytes_max = 50,
          .experts_bytes = 5000,
          .workers = workers,
          .experts_at_once = 4};
}

uint64_t staying(const DenseNeeds& n, const DenseWindow& window) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < n.layers.size(); ++i) bytes += window.streamed[i] ? 0 : n.layers[i];
  return bytes;
}

TEST(DenseWindow, AllLayersStayWhereTheyAndOneExpertHaveRoom) {
  const DenseNeeds n = needs(std::vector<uint64_t>(8, 100));
  EXPECT_EQ(bytes_if_all_stay(n), 1850u);
  const auto window = plan_dense_window(n, 1850);
  ASSERT_TRUE(window);
  EXPECT_FALSE(window->streams());
  EXPECT_EQ(window->streamed_layers, 0u);
}

TEST(DenseWindow, TheLeastIsSaidAsItCanBeGiven) {
  DenseNeeds n = needs(std::vector<uint64_t>(8, 100 << 20));
  n.fixed_bytes = 1000 << 20, n.expert_bytes_max = (50 << 20) + 1;
  EXPECT_EQ(plan_dense_window(n, 1 << 30).status().message(),
            "an arena of 1.00 GiB is too small: dense weights need 1.76 GiB (1.17 GiB if their layers take turns) and "
            "the largest expert 50.0 MiB; raise --dram to at least 1251MiB");
  EXPECT_TRUE(plan_dense_window(n, uint64_t{1251} << 20).is_ok());
}

TEST(DenseWindow, NoMoreThanTheShareThatWasAskedForStays) {
  DenseNeeds n = needs(std::vector<uint64_t>(8, 100));
  n.staying_share = 0.25;
  EXPECT_EQ(dense_bytes_min(n), 1000u + 2 * 100 + 50);
  const auto much = plan_dense_window(n, 100'000), little = plan_dense_window(n, 1000 + 2 * 100 + 4 * 50 + 100);
  ASSERT_TRUE(much && little);
  EXPECT_EQ(staying(n, *much), 200u) << "whatever room there is";
  EXPECT_EQ(staying(n, *little), 100u) << "as much as there is room for";
  n.staying_share = 0;
  EXPECT_EQ(plan_dense_window(n, 100'000)->streamed_layers, 8u);
}

TEST(DenseWindow, EachWorkerHasAnExpertWhereAllLayersStay) {
  const DenseNeeds n = needs(std::vector<uint64_t>(8, 100), 3);
  EXPECT_EQ(bytes_if_all_stay(n), 1950u);
  const auto all = plan_dense_window(n, 1950), less = plan_dense_window(n, 1949);
  ASSERT_TRUE(all && less);
  EXPECT_FALSE(all->streams());
  EXPECT_TRUE(less->streams()) << "a worker would be refused, and with less memory none is";
}

TEST(DenseWindow, TheLayersThatStayAreSpread) {
  const DenseNeeds n = needs(std::vector<uint64_t>(8, 100));
  const auto window = plan_dense_window(n, 1000 + 2 * 100 + 4 * 50 + 4 * 100);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->places, 2u);
  EXPECT_EQ(window->place_bytes, 100u);
  EXPECT_THAT(window->streamed, ElementsAre(true, false, true, false, true, false, true, false));
  EXPECT_EQ(window->streamed_layers, 4u);
  EXPECT_EQ(window->streamed_bytes, 400u);
}

TEST(DenseWindow, TheLeastIsTwoLayersAndAnExpertForEachWorker) {
  for (const uint32_t workers : {1U, 2U, 5U}) {
    const DenseNeeds n = needs(std::vector<uint64_t>(20, 100), workers);
    const uint64_t least = dense_bytes_min(n);
    EXPECT_EQ(least, 1000 + std::max(2U, workers) * 100 + workers * 50);
    const auto window = plan_dense_window(n, least);
    ASSERT_TRUE(window) << window.status().message();
    EXPECT_EQ(window->places, std::max(2U, workers));
    EXPECT_EQ(window->streamed_layers, 20u);
    const auto refused = plan_dense_window(n, least - 1);
    EXPECT_EQ(refused.status().code(), Code::kExhausted);
    EXPECT_THAT(refused.status().message(), HasSubstr("raise --dram to at least " + std::to_string(least)));
  }
}

TEST(DenseWindow, WithoutLayersTheLeastIsAllOfThem) {
  const DenseNeeds n = needs({});
  EXPECT_EQ(dense_bytes_min(n), 1050u);
  EXPECT_FALSE(plan_dense_window(n, 1049));
  EXPECT_TRUE(plan_dense_window(n, 1050));
}

/// Whatever the lengths: what stays, the window and the experts have room; more memory never means more to read.
TEST(DenseWindow, EverySizeFitsAndMoreMemoryReadsNoMore) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<uint64_t> layers;
    for (uint64_t i = 0; i < 3 + seed % 30; ++i) layers.push_back(40 + (seed * 7919 + i * 104729) % 90);
    const auto workers = static_cast<uint32_t>(1 + seed % 3);
    const DenseNeeds n = needs(layers, workers);
    const uint64_t all = bytes_if_all_stay(n), largest = *std::ranges::max_element(layers);
    double before = 1e18;
    for (uint64_t bytes = dense_bytes_min(n); bytes < all; bytes += 13) {
      const auto window = plan_dense_window(n, bytes);
      ASSERT_TRUE(window) << window.status().message();
      ASSERT_EQ(window->place_bytes, largest);
      ASSERT_GE(window->places, std::max(2U, workers));
      ASSERT_LE(1000 + staying(n, *window) + window->places * largest + workers * 50, bytes);
      ASSERT_EQ(staying(n, *window) + window->streamed_bytes,
                std::accumulate(layers.begin(), layers.end(), uint64_t{0}));
      // Within what one layer, which fits or not, and further places and experts change.
      const auto read = static_cast<double>(window->streamed_bytes);
      ASSERT_LE(read, before + static_cast<double>(largest * (2 + 2 * workers) + 200 * workers)) << bytes;
      before = std::min(before, read);
    }
  }
}

}  // namespace
}  // namespace moestro::tier
