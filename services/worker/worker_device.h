#pragma once
// The layer between store and engine: a device's own memory and the link that brings experts there, or nothing on the
// CPU, which reads experts in place; and for both the predictor of what is needed next.

#include <memory>
#include <string>

#include "common/activation/eamc_view.h"
#include "common/config/device_spec.h"
#include "common/lanes/timeline.h"
#include "services/worker/cuda/cuda_device.h"
#include "services/worker/device/dense_division.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/foresight.h"
#include "services/worker/device/host_outlook.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/pass.h"

namespace moestro::device {

struct WorkerDeviceOptions {
  config::DeviceSpec spec;
  std::string cache = "auto";    ///< policy::make_device_policy
  std::string predict = "auto";  ///< prediction::make_predictor; none: experts are brought on demand
  bool cuda_graphs = true;       ///< cuda::CudaParts
  bool cublas = true;            ///< cuda::CudaDevice::use_cublas
};

/// kInvalidArgument: an unknown name (with the valid ones), or options that do not go together.
Status check_worker_device(const WorkerDeviceOptions& options);

/// What is to be predicted of this model: of encoder-decoder models nothing, so auto becomes none. kUnsupported:
/// another predictor.
Status take_model(const model::ModelSpec& spec, WorkerDeviceOptions& options);

class WorkerDevice {
 public:
  /// The device for an engine with `engine` options. `cuda`: the opened device, if it is one; `cpu_ops`: this
  /// machine's. All outlive it. Divides a device's memory; if it is too small, the error names the minimum.
  static Result<WorkerDevice> create(const WorkerDeviceOptions& options, const engine::EngineOptions& engine,
                                     store::BlobSource& host, kernels::Ops& cpu_ops, cuda::CudaDevice* cuda,
                                     const Clock& clock);

  /// The engine's source of weights.
  store::BlobSource& source() { return experts_ ? static_cast<store::BlobSource&>(*experts_) : *host_; }
  /// The engine's backend.
  engine::Backend backend() const;
  /// Lets the engine report its routes to the predictor, and to the device. `timeline` and `history` may be null; all
  /// outlive the engine's steps.
  Status attach(engine::Engine& engine, lanes::Timeline* timeline, const activation::HistoryView* history);

  /// Null on the CPU.
  DeviceExperts* experts() const { return experts_.get(); }
  /// kUnavailable: the device has failed, and the worker must end.
  Status check() const;
  /// For the log: which memory holds what, and how it is chosen.
  std::string describe() const;
  /// The division of a GPU's memory, one line per part; empty for other devices.
  std::vector<std::string> memory_table() const { return budget_.table(); }

 private:
  WorkerDevice(const WorkerDeviceOptions& options, std::optional<DType> precision, store::BlobSource& host,
               kernels::Ops& cpu_ops, cuda::CudaDevice* cuda, const Clock& clock)
      : options_(options), precision_(precision), host_(&host), cpu_ops_(&cpu_ops), clock_(&clock), cuda_(cuda) {}
  Status give_memory(const engine::EngineOptions& engine);
  Status divide(const engine::EngineOptions& engine, DeviceExpertsOptions& of);
  DType precision() const;

  WorkerDeviceOptions options_;
  std::optional<DType> precision_;  ///< of the experts; nullopt: the pack's first
  store::BlobSource* host_;
  kernels::Ops* cpu_ops_;
  bool host_attends_ = false;
  std::unique_ptr<kernels::Ops> host_ops_;  ///< of a host that attends beside an emulated device; else null
  const Clock* clock_;
  cuda::CudaDevice* cuda_;  ///< null: the CPU computes
  cuda::DeviceBudget budget_;
  std::optional<DenseDivision> dense_;  ///< of an emulated device whose memory has dense weights, or of a GPU where
                                        ///< some take turns
  std::unique_ptr<DeviceExperts> experts_;
  std::unique_ptr<HostOutlook> outlook_;  ///< null: nothing is predicted
  std::unique_ptr<Foresight> foresight_;
};

}  // namespace moestro::device
