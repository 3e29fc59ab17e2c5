// What --schedule, --micro-batches and --kv-home come to, on each kind of device.

#include <gtest/gtest.h>

#include "services/worker/choose_schedule.h"
#include "services/worker/mixed_options.h"

namespace moestro::worker {
namespace {

using Device = config::DeviceSpec::Kind;
using engine::KvHome;
using engine::ScheduleKind;

struct Taken {
  engine::EngineOptions options;
  Status status;
};
Taken take(const config::BoxConfig& box, Device on) {
  Taken taken;
  taken.status = take_schedule(box, on, taken.options);
  return taken;
}
Taken take(const std::string& schedule, const std::string& home, Device on) {
  config::BoxConfig box;
  box.workers.schedule = schedule;
  box.workers.kv_home = home;
  return take(box, on);
}

TEST(ScheduleChoice, AutoIsLayerwiseUnlessKvHasToMove) {
  for (const Device on : {Device::kCpu, Device::kEmulated, Device::kCuda})
    EXPECT_EQ(take("auto", "device", on).options.schedule, ScheduleKind::kLayerwise);
  for (const Device on : {Device::kEmulated, Device::kCuda}) {
    const Taken moved = take("auto", "host", on);
    EXPECT_EQ(moved.options.schedule, ScheduleKind::kExpertPipeline);
    EXPECT_EQ(moved.options.kv_home, KvHome::kHost);
  }
  EXPECT_EQ(take("auto", "host", Device::kCpu).options.schedule, ScheduleKind::kLayerwise) << "nothing moves there";
}

TEST(ScheduleChoice, WhatIsAskedForIsTaken) {
  config::BoxConfig box;
  box.workers.schedule = "expert-pipeline";
  box.workers.micro_batches = 6;
  box.workers.micro_batch_rows = 32;
  box.workers.kv_home = "host";
  box.workers.kv_resident_tokens = 160;
  box.workers.kv_ring_tokens = 4096;
  box.orchestrator.step_tokens = 1024;
  const auto [o, status] = take(box, Device::kEmulated);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(o.schedule, ScheduleKind::kExpertPipeline);
  EXPECT_EQ(o.cut.count, 6);
  EXPECT_EQ(o.cut.rows, 32);
  EXPECT_EQ(o.kv_resident_tokens, 160);
  EXPECT_EQ(o.kv_ring_tokens, 4096);
  EXPECT_EQ(o.step_tokens_max, 1024);
  EXPECT_EQ(o.step_sequences_max, 1024) << "as many sequences as tokens decode in a step";
  EXPECT_EQ(take("layerwise", "device", Device::kCpu).options.step_sequences_max, 256);
}

TEST(ScheduleChoice, TheHostAttendsBesideADevice) {
  config::BoxConfig box;
  box.workers.schedule = "cgo", box.workers.kv_home = "host", box.workers.micro_batches = 4;
  box.orchestrator.step_tokens = 1024;
  for (const Device on : {Device::kEmulated, Device::kCuda}) {
    const auto [o, status] = take(box, on);
    ASSERT_TRUE(status.is_ok()) << status.message();
    EXPECT_EQ(o.schedule, ScheduleKind::kCgo);
    EXPECT_EQ(o.kv_home, KvHome::kHost);
    EXPECT_EQ(o.cut.count, 4);
    EXPECT_EQ(o.step_sequences_max, 1024);
  }
}

TEST(ScheduleChoice, WhatDoesNotGoIsRefusedByName) {
  const auto names = [](const Taken& taken, Code code, const std::string& words) {
    EXPECT_EQ(taken.status.code(), code) << taken.status.message();
    EXPECT_NE(taken.status.message().find(words), std::string::npos) << taken.status.message();
  };
  names(take("cgo", "host", Device::kCpu), Code::kUnsupported, "--schedule cgo on the CPU");
  names(take("cgo", "device", Device::kEmulated), Code::kInvalidArgument, "add --kv-home host");
  config::BoxConfig apart;
  apart.workers.schedule = "cgo", apart.workers.kv_home = "host", apart.workers.deterministic = true;
  names(take(apart, Device::kCuda), Code::kInvalidArgument, "--schedule cgo with --deterministic on a GPU");
  EXPECT_TRUE(take(apart, Device::kEmulated).status.is_ok());
  config::BoxConfig stays;
  stays.workers.schedule = "cgo", stays.workers.kv_home = "host", stays.workers.kv_resident_tokens = 64;
  names(take(stays, Device::kEmulated), Code::kInvalidArgument, "--kv-resident-tokens 64 with --schedule cgo");
  names(take("layerwise", "host", Device::kEmulated), Code::kInvalidArgument, "--schedule layerwise with --kv-home");
  config::BoxConfig box;
  box.workers.micro_batches = 2;
  names(take(box, Device::kCpu), Code::kInvalidArgument, "--micro-batches and --micro-batch-rows need");
  config::BoxConfig ring;
  ring.workers.kv_ring_tokens = 4096;
  names(take(ring, Device::kEmulated), Code::kInvalidArgument, "they need --kv-home host");
  ring.workers.kv_home = "host";
  names(take(ring, Device::kCpu), Code::kInvalidArgument, "need a device with its own memory");
  config::BoxConfig resident;
  resident.workers.kv_home = "host";
  resident.workers.kv_resident_tokens = 999999999;
  names(take(resident, Device::kCpu), Code::kInvalidArgument, "need a device with its own memory");
}

/// Neither refusal names a way that the other closes.
TEST(ScheduleChoice, LowCopiesGoWithStepsInOnePiece) {
  const auto refusal = [](const std::string& schedule, const std::string& home, Device on) {
    config::BoxConfig box;
    box.workers.mixed = "int4";
    box.workers.schedule = schedule;
    box.workers.kv_home = home;
    return mixed_options(box, on).status().message();
  };
  for (const char* const schedule : {"auto", "layerwise", "expert-pipeline"})
    EXPECT_NE(refusal(schedule, "host", Device::kEmulated).find("leave out --kv-home host"), std::string::npos);
  EXPECT_NE(refusal("cgo", "host", Device::kEmulated).find("leave out --schedule cgo and --kv-home host"),
            std::string::npos);
  for (const Device on : {Device::kCpu, Device::kEmulated}) {
    EXPECT_NE(refusal("expert-pipeline", "device", on).find("leave out --schedule expert-pipeline"), std::string::npos);
    EXPECT_EQ(refusal("layerwise", "device", on), "");
    EXPECT_EQ(refusal("auto", "device", on), "");
  }
  EXPECT_EQ(refusal("auto", "host", Device::kCpu), "") << "nothing moves there";
}

}  // namespace
}  // namespace moestro::worker
