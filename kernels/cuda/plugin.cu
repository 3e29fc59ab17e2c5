// The CUDA plugin: its probe of the machine's devices.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

#include "kernels/plugin/plugin_abi.h"

namespace {

/// Stands for the plugin's device code: a device for which it cannot be loaded cannot run the others either.
__global__ void any_kernel() {}

/// The least compute capability that there is code for. Older cards are named, not touched.
constexpr int kMajorMin = 8;

/// The least driver that runs what a toolkit makes: within a major version, that of its first release.
#if CUDART_VERSION >= 13000
#define MOESTRO_LEAST_DRIVER "580"
#elif CUDART_VERSION >= 12000
#define MOESTRO_LEAST_DRIVER "525"
#else
#error "the plugin needs CUDA 12 or later"
#endif

/// CUDA's words, and which driver is needed if that is what they are about. scripts/gpu_bundle looks for the latter.
void say(cudaError_t result, char* error, int32_t error_bytes) {
  const bool is_driver = result == cudaErrorInsufficientDriver;
  int at = std::snprintf(error, static_cast<size_t>(error_bytes), "%s", cudaGetErrorString(result));
  if (is_driver && at < error_bytes)
    std::snprintf(error + at, static_cast<size_t>(error_bytes - at),
                  "; the plugin, built with CUDA %d.%d, needs NVIDIA's driver " MOESTRO_LEAST_DRIVER " or later",
                  CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/// Takes the device into use, which costs some of its memory; what is left of it.
cudaError_t use(int index, MoestroCudaDevice& out) {
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess) return error;
  size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes); error != cudaSuccess) return error;
  out.free_bytes = free_bytes;
  out.total_bytes = total_bytes;
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, any_kernel);
}

cudaError_t look_at(int index, MoestroCudaDevice& out) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) return error;
  std::snprintf(out.name, sizeof out.name, "%s", properties.name);
  out.major = properties.major;
  out.minor = properties.minor;
  std::snprintf(out.pci, sizeof out.pci, "%04x:%02x:%02x.0", properties.pciDomainID, properties.pciBusID,
                properties.pciDeviceID);
  out.free_bytes = out.total_bytes = properties.totalGlobalMem;
  if (properties.major < kMajorMin) return cudaSuccess;
  const cudaError_t error = use(index, out);
  if (error != cudaErrorMemoryAllocation) return error;
  out.free_bytes = 0;  // others have all of it: there is not even room to take it into use
  (void)cudaGetLastError();
  return cudaSuccess;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t moestro_cuda_plugin_version() {
  return MOESTRO_CUDA_PLUGIN_VERSION;
}

extern "C" __attribute__((visibility("default"))) int32_t moestro_cuda_probe(MoestroCudaDevice* devices,
                                                                             int32_t devices_max, char* error,
                                                                             int32_t error_bytes) {
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess) {
    say(result, error, error_bytes);
    return -1;
  }
  for (int i = 0; i < std::min<int>(count, devices_max); ++i) {
    devices[i] = MoestroCudaDevice{};
    const cudaError_t result = look_at(i, devices[i]);
    if (result == cudaSuccess) continue;
    std::snprintf(devices[i].failed, sizeof devices[i].failed, "%s", cudaGetErrorString(result));
    (void)cudaGetLastError();  // the others are asked as if nothing had been
  }
  return count;
}
