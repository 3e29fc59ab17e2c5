#pragma once
// Which devices this machine can compute on. The only file that knows how a backend that may be missing is found.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"

struct MoestroCudaFunctions;  // kernels/cuda/plugin_abi.h

namespace moestro::kernels {

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  uint64_t free_bytes = 0, total_bytes = 0;
};

/// Where the CUDA plugin lies: libmoestro_cuda.so beside this program.
std::filesystem::path cuda_plugin_path();

/// The machine's CUDA devices, at least one. Loads `plugin` into this process, for good. kUnsupported: there is no plugin, or not one of this
/// version; kUnavailable: CUDA finds no device, with its own words.
Result<std::vector<CudaDevice>> probe_cuda(const std::filesystem::path& plugin);

/// What the plugin does with devices; lives for ever. Errors as of probe_cuda, whether or not there is a device.
Result<const MoestroCudaFunctions*> cuda_functions(const std::filesystem::path& plugin);

/// Whether --device `device` (common/config/device_spec.h) can be computed on; else why not. Looks for CUDA where that is asked for.
Status check_device(const std::string& device, const std::filesystem::path& cuda_plugin = cuda_plugin_path());

}  // namespace moestro::kernels
