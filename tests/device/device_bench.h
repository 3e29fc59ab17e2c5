#pragma once
// An engine of a test model on an emulated device.

#include <memory>
#include <string>

#include "common/activation/history.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/foresight.h"
#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::device::testing {

struct DeviceBenchOptions {
  int32_t slots = 4;
  std::string cache = "lfru";
  std::string predictor = "none";
  const activation::ActivationHistory* history = nullptr;  ///< what the predictor knows of past requests
  uint64_t link_bytes_per_s = uint64_t{4} << 30;
  Nanos latency{0};
  bool late_host = false;  ///< host memory has nothing at hand: experts arrive late, in random order
  engine::testing::LateSource::Options late = {};
  engine::testing::BenchOptions engine = {};
};

class DeviceBench {
 public:
  DeviceBench(const engine::testing::Fixture& fixture, const DeviceBenchOptions& options);
  engine::testing::Bench& bench() { return *bench_; }
  DeviceExperts& device() { return *device_; }
  Foresight& foresight() { return *foresight_; }

 private:
  SteadyClock clock_;
  std::unique_ptr<store::BlobSource> host_;
  DeviceExperts* device_ = nullptr;  ///< the bench owns it
  std::unique_ptr<engine::testing::Bench> bench_;
  std::unique_ptr<Foresight> foresight_;
};

}  // namespace moestro::device::testing
