#pragma once
// Which devices this machine can compute on. The only file that knows how a backend that may be missing is found.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/device_spec.h"
#include "common/status.h"

struct MoestroCudaFunctions;  // kernels/cuda/plugin_abi.h

namespace moestro::kernels {

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  uint64_t free_bytes = 0, total_bytes = 0;
  std::string pci;          ///< as under /sys/bus/pci/devices: 0000:17:00.0
  std::string failed =
      {};  ///< why it cannot be computed on, in CUDA's words: it is faulty; empty: nothing is known against it
};

/// The least compute capability that the kernels are made for.
inline constexpr int kCudaMajorMin = 8;

/// Where the CUDA plugin lies: what MOESTRO_CUDA_PLUGIN in the environment names, else libmoestro_cuda.so beside this
/// program.
std::filesystem::path cuda_plugin_path();

/// The machine's CUDA devices, at least one; of each that fails it says so. Loads `plugin` into this process, for good;
/// CUDA then keeps memory on every device, and threads here. kUnsupported: there is no plugin, or not one of this
/// version; kUnavailable: CUDA finds no device, with its own words.
Result<std::vector<CudaDevice>> probe_cuda(const std::filesystem::path& plugin);

/// The same, seen by a process of its own that has ended on return: nothing of CUDA stays, and no death or silence of a
/// driver reaches this one. (After open_cuda it is probe_cuda: a child of a process that uses CUDA cannot.) Memory is
/// free beside what one process's use of the device takes.
Result<std::vector<CudaDevice>> look_at_cuda(const std::filesystem::path& plugin = cuda_plugin_path());

/// What the plugin does with devices; lives for ever. Errors as of probe_cuda, whether or not there is a device.
Result<const MoestroCudaFunctions*> cuda_functions(const std::filesystem::path& plugin);

/// Whether the card is too old for the kernels, or faulty (kUnavailable).
Status check_card(const CudaDevice& device);
/// Whether a worker can compute on that one of `devices`; else why not, and what to do.
Status check_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices);
/// Indices of those that a worker can compute on: the one that is asked for, or, where none is, all that can be, one at
/// least. Why there is none is said of the first.
Result<std::vector<uint32_t>> usable_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices);

struct OpenCuda {
  const MoestroCudaFunctions* functions = nullptr;
  uint32_t index = 0;
  CudaDevice device;  ///< memory as it is now, beside what CUDA takes for this process
};
/// Looks, checks, and takes the device into use: of this thread. Others that call its functions choose it first
/// (use_device).
Result<OpenCuda> open_cuda(const config::CudaDeviceSpec& spec,
                           const std::filesystem::path& plugin = cuda_plugin_path());

/// Whether --device `device` (common/config/device_spec.h) can be computed on; else why not. Looks for CUDA where that
/// is asked for.
Status check_device(const std::string& device, const std::filesystem::path& cuda_plugin = cuda_plugin_path());

/// Whether open_cuda has been called.
bool cuda_in_use();

/// Version of the NVIDIA driver that is loaded; empty: none is.
std::string nvidia_driver(const std::filesystem::path& file = "/proc/driver/nvidia/version");
/// The NUMA node that a PCI device is at; none: the machine does not say.
std::optional<int> numa_node_of(const std::string& pci, const std::filesystem::path& devices = "/sys/bus/pci/devices");

}  // namespace moestro::kernels
