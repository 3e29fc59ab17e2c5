// What goes wrong with an expert concerns those who need it, and nobody else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/device/device_bench.h"
#include "tests/device/poisoned_source.h"

namespace moestro::device::testing {
namespace {

using ::testing::HasSubstr;

TEST(DeviceFaults, AMemoryThatHoldsNoExpertIsRefusedWithTheLeastThatDoes) {
  const auto& fixture = engine::testing::any_fixture();
  auto host = store::ResidentSource::open(engine::testing::packed(fixture, DType::kF32, DType::kF32));
  ASSERT_TRUE(host.is_ok());
  SteadyClock clock;
  const auto device = DeviceExperts::create(
      **host, {.device = {.vram_bytes = 100, .link_bytes_per_s = 1 << 20}, .precision = DType::kF32}, clock);
  ASSERT_FALSE(device.is_ok());
  EXPECT_EQ(device.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(device.status().message(), HasSubstr("vram=100 holds no expert of"));
  EXPECT_THAT(device.status().message(), HasSubstr("give the device at least vram="));
}

TEST(DeviceFaults, APrecisionThatThePackLacks) {
  const auto& fixture = engine::testing::any_fixture();
  auto host = store::ResidentSource::open(engine::testing::packed(fixture, DType::kF32, DType::kF32));
  ASSERT_TRUE(host.is_ok());
  SteadyClock clock;
  const auto device = DeviceExperts::create(
      **host, {.device = {.vram_bytes = 1 << 30, .link_bytes_per_s = 1 << 20}, .precision = DType::kInt8}, clock);
  ASSERT_FALSE(device.is_ok());
  EXPECT_THAT(device.status().message(), HasSubstr("has no experts as int8"));
}

TEST(DeviceFaults, AnExpertThatCannotBeReadFailsThoseThatNeedItAndIsAskedForAgain) {
  const auto& fixture = engine::testing::any_fixture();
  DeviceBench whole(fixture, {});
  const auto vocab = static_cast<uint64_t>(whole.bench().engine().spec().vocab);
  const uint32_t blob = *whole.device().manifest().expert_blob(MoeLayerId(1), ExpertId(2), DType::kF32);
  for (const char* predictor : {"none", "next-layer-all"}) {
    DeviceBench device(fixture, {.slots = 3, .predictor = predictor, .late_host = true, .late = {.broken_blob = blob}});
    engine::testing::Bench& bench = device.bench();
    int failed = 0, served = 0;
    // One token after another: those that are not routed to the broken expert have their answers.
    for (uint64_t i = 0; i < 24; ++i) {
      auto& s = bench.add(i, {static_cast<TokenId>((i * 37 + 11) % vocab)});
      s.sample = true;
      const auto outcome = bench.run();
      ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
      const auto& status = outcome->sequences.at(0).status;
      if (status.is_ok()) {
        ++served;
      } else {
        ++failed;
        EXPECT_THAT(status.message(), HasSubstr("blob " + std::to_string(blob))) << predictor;
      }
      bench.release(i);
    }
    EXPECT_GT(failed, 0) << predictor;
    EXPECT_GT(served, 0) << predictor;
  }
}

/// The store finds the host's bytes wrong while a step uses their copy.
TEST(DeviceFaults, ACopyOfWhatWasFoundWrongIsNotKept) {
  const auto& fixture = engine::testing::any_fixture();
  engine::testing::LateSource* host = nullptr;
  DeviceBench device(fixture, {.slots = 64, .late_host = true, .late = {.on_lease = [&](auto& source, uint32_t) {
                                 host = &source;
                               }}});
  engine::testing::Bench& bench = device.bench();
  uint64_t id = 0;
  const auto run = [&] {
    bench.add(++id, {11}).sample = true;
    auto outcome = bench.run();
    bench.release(id);
    return outcome;
  };
  const auto first = run();
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  const auto& used = first->sequences.at(0).activations.at(0);
  const uint32_t blob = *device.device().manifest().expert_blob(used.layer, used.expert, DType::kF32);
  const uint64_t moved = device.device().tier_counters().moved_bytes;
  ASSERT_NE(host, nullptr);
  host->find_wrong_late(blob);
  const auto second = run();
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_EQ(second->sequences.at(0).status.code(), Code::kCorrupt) << "of what its slot has";
  EXPECT_EQ(device.device().tier_counters().moved_bytes, moved);
  const auto third = run();
  ASSERT_TRUE(third.is_ok() && third->sequences.at(0).status.is_ok()) << "copied again";
  EXPECT_EQ(third->sequences.at(0).sampled.at(0).id, first->sequences.at(0).sampled.at(0).id);
  EXPECT_EQ(device.device().tier_counters().moved_bytes, moved + device.device().slot_bytes());
}

/// A store that takes over from a killed one says that of each blob that was being read.
TEST(DeviceFaults, ACopyOfWhatWasFoundWrongIsMadeAgainBeforeItIsUsed) {
  const auto& fixture = engine::testing::any_fixture();
  const int32_t all = [&] {
    DeviceBench whole(fixture, {.slots = 1000});
    return whole.device().slots();
  }();
  for (const int32_t slots : {all - 1, all}) {
    DeviceBench device(fixture, {.slots = slots, .late_host = true});
    uint64_t id = 0;
    const auto run = [&] {
      device.bench().add(++id, {11}).sample = true;
      auto outcome = device.bench().run();
      device.bench().release(id);
      return outcome;
    };
    const auto first = run();
    ASSERT_TRUE(first.is_ok()) << first.status().message();
    const auto& used = first->sequences.at(0).activations.at(0);
    const uint64_t moved = device.device().tier_counters().moved_bytes;
    device.late_host()->find_wrong(*device.device().manifest().expert_blob(used.layer, used.expert, DType::kF32));
    const auto second = run();
    ASSERT_TRUE(second.is_ok()) << second.status().message();
    ASSERT_TRUE(second->sequences.at(0).status.is_ok()) << slots << ": " << second->sequences.at(0).status.message();
    EXPECT_EQ(second->sequences.at(0).sampled.at(0).id, first->sequences.at(0).sampled.at(0).id);
    EXPECT_EQ(device.device().tier_counters().moved_bytes, moved + device.device().slot_bytes());
  }
}

/// An expert that is foreseen, and may not take the slot of another, waits in host memory. Between requests it would be
/// kept from others there for as long as none comes.
TEST(DeviceFaults, AnIdleDevicePinsNothingInHostMemory) {
  constexpr int32_t kLayers = 4, kExperts = 8;
  const SteadyClock clock;
  PoisonedSource host(plain_manifest(kLayers, kExperts, 4096), 1, 0);
  const auto made = DeviceExperts::create(host, {.device = {.vram_bytes = 4 * 4096, .link_bytes_per_s = 1 << 30},
                                                 .precision = DType::kF32}, clock);
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  DeviceExperts& device = **made;
  device.begin_step(PlanId(1), false);
  const store::Need first{0, 1.0F};
  device.need({MoeLayerId(0), {&first, 1}});
  ASSERT_TRUE(device.fetch({&first.blob, 1}, {PlanId(1), MoeLayerId(0)}).is_ok());
  auto lease = device.next_arrival(std::chrono::seconds(20));
  ASSERT_TRUE(lease.is_ok()) << lease.status().message();
  lease->release();
  prediction::Forecast forecast(kLayers, kExperts);
  for (int32_t layer = 1; layer < kLayers; ++layer) std::ranges::fill(forecast.row(layer), 0.9F);
  device.forecast(0, forecast);
  EXPECT_GT(host.leased(), 4) << "more than there are slots";
  const Nanos until = clock.now() + std::chrono::seconds(20);
  while (host.leased() > 0 && clock.now() < until) {
    device.idle();
    std::this_thread::yield();
  }
  EXPECT_EQ(host.leased(), 0);
  device.forecast(0, forecast);
  EXPECT_GT(host.leased(), 0) << "with the next step they may be copied again";
}

}  // namespace
}  // namespace moestro::device::testing
