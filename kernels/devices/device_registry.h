#pragma once
// The devices that this machine can compute on. The only file that looks for optional backends.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/device_spec.h"
#include "common/status.h"

struct MoestroCudaFunctions;  // kernels/plugin/plugin_abi.h

namespace moestro::kernels {

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  uint64_t free_bytes = 0, total_bytes = 0;
  std::string pci;          ///< as under /sys/bus/pci/devices: 0000:17:00.0
  std::string failed =
      {};  ///< CUDA's message if the card is faulty; empty: no fault is known
};

/// The least compute capability that the kernels are made for.
inline constexpr int kCudaMajorMin = 8;

/// The path of the CUDA plugin: MOESTRO_CUDA_PLUGIN in the environment, otherwise libmoestro_cuda.so in the program's
/// folder.
std::filesystem::path cuda_plugin_path();

/// The machine's CUDA devices, at least one, with the fault of each that fails. Loads `plugin` into this process
/// permanently; CUDA then keeps memory on every device, and threads here. kUnsupported: there is no plugin, or it has
/// another version. kUnavailable: CUDA finds no device; the message is CUDA's.
Result<std::vector<CudaDevice>> probe_cuda(const std::filesystem::path& plugin);

/// The same, in a separate process that has ended on return. So nothing of CUDA remains, and a driver that crashes or
/// hangs does not affect this process. (After open_cuda this is probe_cuda, because a child of a process that uses CUDA
/// cannot use it.) Free memory is what remains after one process's use of the device.
Result<std::vector<CudaDevice>> look_at_cuda(const std::filesystem::path& plugin = cuda_plugin_path());

/// The functions of the plugin; never freed. Errors as for probe_cuda, whether or not there is a device.
Result<const MoestroCudaFunctions*> cuda_functions(const std::filesystem::path& plugin);

/// An error if the card is too old for the kernels, or faulty (kUnavailable).
Status check_card(const CudaDevice& device);
/// OK if a worker can compute on the device of `spec`; otherwise why not, and what to do.
Status check_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices);
/// Indices of usable devices: the requested one, or, without an index, all usable ones, at least one. If there is none,
/// the error is about the first device.
Result<std::vector<uint32_t>> usable_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices);

struct OpenCuda {
  const MoestroCudaFunctions* functions = nullptr;
  uint32_t index = 0;
  CudaDevice device;  ///< free memory is what remains after CUDA's own use by this process
};
/// Finds, checks and opens the device for this thread. Other threads that call its functions must select it first
/// (use_device).
Result<OpenCuda> open_cuda(const config::CudaDeviceSpec& spec,
                           const std::filesystem::path& plugin = cuda_plugin_path());

/// OK if --device `device` (common/config/device_spec.h) can be used; otherwise why not. Looks for CUDA if `device`
/// needs it.
Status check_device(const std::string& device, const std::filesystem::path& cuda_plugin = cuda_plugin_path());

/// Whether open_cuda has been called.
bool cuda_in_use();

/// Version of the loaded NVIDIA driver; empty: none is loaded.
std::string nvidia_driver(const std::filesystem::path& file = "/proc/driver/nvidia/version");
/// The NUMA node of a PCI device; nullopt: the machine does not say.
std::optional<int> numa_node_of(const std::string& pci, const std::filesystem::path& devices = "/sys/bus/pci/devices");

}  // namespace moestro::kernels
