#pragma once
// What a worker computes on, between the store and the engine: nothing on the CPU, which reads experts where they lie;
// a device's own memory, with what brings experts there, elsewhere.

#include <memory>
#include <string>

#include "common/activation/eamc_view.h"
#include "common/config/device_spec.h"
#include "common/lanes/timeline.h"
#include "services/worker/cuda/cuda_device.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/foresight.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/pass.h"

namespace moestro::device {

struct WorkerDeviceOptions {
  config::DeviceSpec spec;
  std::string cache = "auto";    ///< policy::make_device_policy
  std::string predict = "auto";  ///< prediction::make_predictor; none: an expert is copied when it is wanted
  bool cuda_graphs = true;       ///< cuda::CudaParts
};

/// What is wrong with the names in it, or does not go together: kInvalidArgument, with the names there are.
Status check_worker_device(const WorkerDeviceOptions& options);

class WorkerDevice {
 public:
  /// What an engine with `engine` options is to compute on. `cuda`: opened, where the device is one; `cpu_ops`: this
  /// machine's. All outlive it. A device's memory is shared out, or the least that would do is named.
  static Result<WorkerDevice> create(const WorkerDeviceOptions& options, const engine::EngineOptions& engine,
                                     store::BlobSource& host, kernels::Ops& cpu_ops, cuda::CudaDevice* cuda,
                                     const Clock& clock);

  /// Where the engine gets its weights.
  store::BlobSource& source() { return experts_ ? static_cast<store::BlobSource&>(*experts_) : *host_; }
  /// What the engine computes with.
  engine::Backend backend() const;
  /// Has the engine tell the device what it routes. `timeline` and `history` may be null; all outlive the engine's
  /// steps.
  Status attach(engine::Engine& engine, lanes::Timeline* timeline, const activation::HistoryView* history);

  /// Null on the CPU.
  DeviceExperts* experts() const { return experts_.get(); }
  /// kUnavailable: the device fell off, and the worker has to end.
  Status check() const;
  /// For the log: what is held where, and how it is chosen.
  std::string describe() const;
  /// How a GPU's memory is shared out, a line each; empty elsewhere.
  std::vector<std::string> memory_table() const { return budget_.table(); }

 private:
  WorkerDevice(const WorkerDeviceOptions& options, store::BlobSource& host, kernels::Ops& cpu_ops,
               cuda::CudaDevice* cuda)
      : options_(options), host_(&host), cpu_ops_(&cpu_ops), cuda_(cuda) {}

  WorkerDeviceOptions options_;
  store::BlobSource* host_;
  kernels::Ops* cpu_ops_;
  cuda::CudaDevice* cuda_;  ///< null: the CPU computes
  cuda::DeviceBudget budget_;
  std::unique_ptr<DeviceExperts> experts_;
  std::unique_ptr<Foresight> foresight_;
};

}  // namespace moestro::device
