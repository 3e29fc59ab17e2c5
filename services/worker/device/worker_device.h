#pragma once
// What a worker computes on, between the store and the engine: nothing on the CPU, which reads experts where they lie; a device's own
// memory, with what brings experts there, elsewhere.

#include <memory>
#include <string>

#include "common/activation/history.h"
#include "common/config/device_spec.h"
#include "common/lanes/timeline.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/foresight.h"
#include "services/worker/engine/engine.h"

namespace moestro::device {

struct WorkerDeviceOptions {
  config::DeviceSpec spec;
  std::string cache = "auto";    ///< policy::make_device_policy
  std::string predict = "auto";  ///< prediction::make_predictor; none: an expert is copied when it is wanted
};

/// What is wrong with the names in it, or does not go together: kInvalidArgument, with the names there are.
Status check_worker_device(const WorkerDeviceOptions& options);

class WorkerDevice {
 public:
  /// `host` and `clock` outlive it. On a CPU there is nothing to make.
  static Result<WorkerDevice> create(const WorkerDeviceOptions& options, std::optional<DType> precision, store::BlobSource& host, const Clock& clock);

  /// Where the engine gets its weights.
  store::BlobSource& source() { return experts_ ? static_cast<store::BlobSource&>(*experts_) : *host_; }
  /// Has the engine tell the device what it routes. `timeline` and `history` may be null; all outlive the engine's steps.
  Status attach(engine::Engine& engine, lanes::Timeline* timeline, const activation::ActivationHistory* history);

  /// Null on the CPU.
  DeviceExperts* experts() const { return experts_.get(); }
  /// For the log: what is held where, and how it is chosen.
  std::string describe() const;

 private:
  WorkerDevice(const WorkerDeviceOptions& options, store::BlobSource& host) : options_(options), host_(&host) {}

  WorkerDeviceOptions options_;
  store::BlobSource* host_;
  std::unique_ptr<DeviceExperts> experts_;
  std::unique_ptr<Foresight> foresight_;
};

}  // namespace moestro::device
