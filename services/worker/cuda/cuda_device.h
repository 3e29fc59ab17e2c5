#pragma once
// A GPU that a worker computes on: its functions, its memory, and the operations on it.

#include <memory>
#include <string>

#include "kernels/cuda/cuda_memory.h"
#include "kernels/devices/device_registry.h"
#include "services/worker/cuda/cuda_needs.h"

namespace moestro::cuda {

class CudaDevice {
 public:
  /// Opens the device for this thread, once per process. Errors say why it cannot be used and what to do.
  /// `deterministic` as in OpsOptions.
  static Result<std::unique_ptr<CudaDevice>> open(const config::CudaDeviceSpec& spec, bool deterministic);

  /// Unless `deterministic`: dense products of many tokens are left to cuBLASLt from now on, where it is installed; the
  /// log says which. Before the memory is divided, for it takes some.
  void use_cublas();

  kernels::cuda::CudaOps& ops() { return *ops_; }
  kernels::cuda::CudaMemory& memory() { return *memory_; }
  const MoestroCudaFunctions& functions() const { return *opened_.functions; }
  uint32_t index() const { return opened_.index; }
  const std::string& name() const { return opened_.device.name; }
  const std::string& pci() const { return opened_.device.pci; }  ///< as under /sys/bus/pci/devices

  /// Divides its memory for an engine with these needs, by what is free now.
  Result<DeviceBudget> share_out(const DeviceNeeds& needs) const;

 private:
  CudaDevice(const config::CudaDeviceSpec& spec, const kernels::OpenCuda& opened,
             std::unique_ptr<kernels::cuda::CudaOps> ops);

  config::CudaDeviceSpec spec_;
  kernels::OpenCuda opened_;
  std::unique_ptr<kernels::cuda::CudaOps> ops_;
  std::unique_ptr<kernels::cuda::CudaMemory> memory_;
};

}  // namespace moestro::cuda
