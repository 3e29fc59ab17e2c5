// How an emulated device's memory is divided where dense weights take of it (dense=counted).

#include "services/worker/device/dense_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/config/units.h"
#include "services/worker/worker_device.h"
#include "tests/device/played_steps.h"

namespace moestro::device::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kVram = uint64_t{1} << 30;

class DenseDivisionTest : public ::testing::Test {
 protected:
  DenseDivisionTest() {
    const auto& pack = engine::testing::packed(deep_fixture(), DType::kF32, DType::kF32);
    host_ = std::move(*store::ResidentSource::open(pack));
    const auto layers = store::dense_layers(manifest());
    for (uint32_t blob = 0; blob < manifest().blobs.size(); ++blob) {
      const store::Blob& b = manifest().blobs[blob];
      if (b.kind == store::BlobKind::kExpert) expert_ = std::max(expert_, b.length);
      else dense_ += b.length;
    }
    for (const uint32_t blob : layers) {
      layers_ += manifest().blobs[blob].length;
      longest_ = std::max(longest_, manifest().blobs[blob].length);
    }
    layer_count_ = layers.size();
  }
  const store::Manifest& manifest() const { return host_->manifest(); }
  Result<DenseDivision> divide(uint64_t vram, double share = 1, uint64_t kv = 0, bool in_turn = true) const {
    return divide_dense(manifest(), DType::kF32, 2,
                        {.vram_bytes = vram, .counts_dense = true, .dense_share = share, .link_bytes_per_s = 1'000'000},
                        kv, in_turn);
  }

  std::unique_ptr<store::BlobSource> host_;
  uint64_t expert_ = 0, dense_ = 0, layers_ = 0, longest_ = 0;
  size_t layer_count_ = 0;
};

TEST_F(DenseDivisionTest, WhatFitsStays) {
  for (const uint64_t kv : {uint64_t{0}, uint64_t{5000}}) {
    const auto all = divide(dense_ + expert_ + kv, 1, kv);
    ASSERT_TRUE(all.is_ok()) << all.status().message();
    EXPECT_FALSE(all->turns);
    EXPECT_EQ(all->bytes, dense_);
    EXPECT_EQ(all->describe({}), "all dense weights stay on the device");
  }
}

TEST_F(DenseDivisionTest, WhatDoesNotFitTakesTurnsAndIsSaid) {
  ASSERT_LT(dense_ - layers_ + 2 * longest_, dense_) << "the fixture has more than two layers";
  const auto some = divide(dense_ + expert_ - 1);
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  ASSERT_TRUE(some->turns);
  EXPECT_EQ(some->turns->places, 2u);
  EXPECT_EQ(some->turns->blobs.size(), some->streamed_layers);
  EXPECT_LE(some->bytes + expert_, dense_ + expert_ - 1);
  EXPECT_EQ(some->bytes, dense_ - some->streamed_bytes + 2 * longest_);
  const std::string line = some->describe({.link_bytes_per_s = some->streamed_bytes / 4});
  EXPECT_THAT(line, HasSubstr(std::to_string(layer_count_ - some->streamed_layers) + " of " +
                              std::to_string(layer_count_) + " layers stay"));
  EXPECT_THAT(line, HasSubstr("at most 0.25 tokens/s of each sequence"));
}

TEST_F(DenseDivisionTest, AShareCanBeAskedFor) {
  EXPECT_FALSE(divide(kVram, 1)->turns);
  const auto half = divide(kVram, 0.5), none = divide(kVram, 0);
  ASSERT_TRUE(half.is_ok() && none.is_ok());
  EXPECT_EQ(none->streamed_bytes, layers_);
  EXPECT_GE(half->streamed_bytes, layers_ / 2);
  EXPECT_LT(half->streamed_bytes, layers_);
  const auto most = divide(kVram, 1 - 0.5 / static_cast<double>(layer_count_));  // a place for the one that cannot stay
  ASSERT_TRUE(most.is_ok() && most->turns);
  EXPECT_EQ(most->streamed_layers, 1u);
  EXPECT_EQ(most->turns->places, 1u);
  EXPECT_LE(most->bytes, dense_);
}

TEST_F(DenseDivisionTest, WhereNoneMayTakeTurnsTheLeastIsAllOfThem) {
  EXPECT_FALSE(divide(dense_ + expert_, 1, 0, false)->turns);
  EXPECT_THAT(divide(dense_ + expert_ - 1, 1, 0, false).status().message(),
              HasSubstr("give the device at least vram=" + config::format_size(dense_ + expert_)));
}

TEST_F(DenseDivisionTest, TheLeastIsNamedAndDoes) {
  const uint64_t least = dense_ - layers_ + 2 * longest_ + expert_;
  for (const uint64_t kv : {uint64_t{0}, uint64_t{4096}}) {
    EXPECT_TRUE(divide(least + kv, 1, kv).is_ok());
    const auto refused = divide(least + kv - 1, 1, kv);
    ASSERT_FALSE(refused.is_ok());
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr("is too small for"));
    EXPECT_THAT(refused.status().message(),
                HasSubstr("give the device at least vram=" + config::format_size(least + kv)));
  }
}

/// What a worker makes of it: the experts get the rest, and the log says so.
TEST_F(DenseDivisionTest, AWorkerDividesItsDevice) {
  SteadyClock clock;
  const auto ops = kernels::make_reference_ops();
  engine::EngineOptions engine{.model = "m", .kv_tokens = 1024, .context_max = 96};
  const auto made = [&](uint64_t vram, bool counts, double share) {
    WorkerDeviceOptions options;
    options.spec.kind = config::DeviceSpec::Kind::kEmulated;
    options.spec.emulated = {.vram_bytes = vram, .counts_dense = counts, .dense_share = share,
                             .link_bytes_per_s = uint64_t{1} << 30};
    return WorkerDevice::create(options, engine, *host_, *ops, nullptr, clock);
  };
  const uint64_t vram = dense_ + 3 * expert_;
  const auto counted = made(vram, true, 1), free = made(vram, false, 1), half = made(vram, true, 0.5);
  ASSERT_TRUE(counted.is_ok() && free.is_ok() && half.is_ok());
  EXPECT_EQ(counted->experts()->slots(), 3);
  EXPECT_TRUE(counted->experts()->streamed().empty());
  EXPECT_EQ(free->experts()->slots(), free->experts()->layers() * free->experts()->experts()) << "all have room";
  EXPECT_FALSE(half->experts()->streamed().empty());
  EXPECT_TRUE(half->backend().dense_over_link);
  EXPECT_THAT(half->describe(), HasSubstr("each step copies"));
  const auto refused = made(expert_, true, 1);
  EXPECT_THAT(refused.status().message(), HasSubstr("give the device at least vram="));
}

}  // namespace
}  // namespace moestro::device::testing
