#include "services/worker/cuda/cuda_device.h"

#include <array>

#include "common/log.h"

namespace moestro::cuda {

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(const config::CudaDeviceSpec& spec, bool deterministic) {
  const std::string what = "--device " + config::device_text(spec);
  auto opened = kernels::open_cuda(spec);
  if (!opened.is_ok()) return opened.status().with_context(what);
  auto ops = kernels::cuda::CudaOps::create(*opened->functions, {.deterministic = deterministic});
  if (!ops.is_ok()) return ops.status().with_context(what);
  return std::unique_ptr<CudaDevice>(new CudaDevice(spec, *opened, std::move(*ops)));
}

CudaDevice::CudaDevice(const config::CudaDeviceSpec& spec, const kernels::OpenCuda& opened,
                       std::unique_ptr<kernels::cuda::CudaOps> ops)
    : spec_(spec), opened_(opened), ops_(std::move(ops)), memory_(std::make_unique<kernels::cuda::CudaMemory>(*ops_)) {}

void CudaDevice::use_cublas() {
  if (ops_->options().deterministic) return;
  std::array<char, 512> text{};
  const MoestroCudaResult result = functions().use_dense_library(1, text.data(), static_cast<int32_t>(text.size()));
  if (result == 0) log::info("dense products of many tokens are computed by cuBLASLt: {}", text.data());
  else log::info("dense products of many tokens are computed without cuBLASLt: {}", text.data());
}

Result<DeviceBudget> CudaDevice::share_out(const DeviceNeeds& needs) const {
  DeviceMemory memory{.name = name(),
                      .vram_bytes = spec_.vram_bytes,
                      .dense_in_turn = spec_.dense_in_turn,
                      .dense_share = spec_.dense_share};
  if (const MoestroCudaResult result = functions().memory_info(&memory.free_bytes, &memory.total_bytes); result != 0)
    return unavailable("the device cuda:" + std::to_string(index()) +
                       ": memory_info: " + functions().error_text(result));
  return cuda::share_out(needs, memory);
}

}  // namespace moestro::cuda
