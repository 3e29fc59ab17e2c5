#include "kernels/device_registry.h"

#include <dlfcn.h>

#include <algorithm>

#include "common/config/device_spec.h"
#include "kernels/cuda/plugin_abi.h"

namespace moestro::kernels {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kDevicesMax = 64;

/// A function of a loaded library; null where it has none of that name.
template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

struct CudaPlugin {
  MoestroCudaProbe probe = nullptr;
  MoestroCudaGetFunctions functions = nullptr;
};

Result<CudaPlugin> load(const fs::path& plugin) {
  std::error_code error;
  if (!fs::exists(plugin, error))
    return unsupported("the CUDA plugin is not built: there is no " + plugin.string() + "; build with `cmake --preset cuda` where nvcc is");
  void* library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: CUDA does not survive it
  if (library == nullptr) {
    const char* why = ::dlerror();
    return unsupported("the CUDA plugin cannot be loaded: " + std::string(why == nullptr ? plugin.string() : why));
  }
  const auto version = symbol<MoestroCudaPluginVersion>(library, MOESTRO_CUDA_PLUGIN_VERSION_SYMBOL);
  const auto probe = symbol<MoestroCudaProbe>(library, MOESTRO_CUDA_PROBE_SYMBOL);
  const auto functions = symbol<MoestroCudaGetFunctions>(library, MOESTRO_CUDA_FUNCTIONS_SYMBOL);
  if (version == nullptr || probe == nullptr) return unsupported(plugin.string() + " is not Moestro's CUDA plugin");
  if (const int32_t found = version(); found != MOESTRO_CUDA_PLUGIN_VERSION)
    return unsupported(plugin.string() + " is a CUDA plugin of version " + std::to_string(found) + ", this program needs " +
                       std::to_string(MOESTRO_CUDA_PLUGIN_VERSION) + ": build both together");
  if (functions == nullptr) return unsupported(plugin.string() + " is not Moestro's CUDA plugin");
  return CudaPlugin{probe, functions};
}

Status check_cuda(size_t index, const fs::path& plugin) {
  const Result<std::vector<CudaDevice>> devices = probe_cuda(plugin);
  if (!devices.is_ok()) return devices.status();
  if (index >= devices->size())
    return invalid_argument("there is no CUDA device " + std::to_string(index) + "; this machine has " + std::to_string(devices->size()));
  return unsupported("computing on CUDA is not in this version (the device would be " + (*devices)[index].name + ")");
}

}  // namespace

fs::path cuda_plugin_path() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path() / "libmoestro_cuda.so";
}

Result<std::vector<CudaDevice>> probe_cuda(const fs::path& plugin) {
  MOESTRO_ASSIGN_OR_RETURN(const CudaPlugin cuda, load(plugin));
  std::vector<MoestroCudaDevice> found(kDevicesMax);
  char error[512] = "";
  const int32_t count = cuda.probe(found.data(), kDevicesMax, error, sizeof error);
  if (count < 0) return unavailable("no CUDA device: " + std::string(error));
  if (count == 0) return unavailable("no CUDA device");
  found.resize(static_cast<size_t>(std::min(count, kDevicesMax)));
  std::vector<CudaDevice> devices;
  for (const MoestroCudaDevice& d : found) devices.push_back({d.name, d.major, d.minor, d.free_bytes, d.total_bytes});
  return devices;
}

Result<const MoestroCudaFunctions*> cuda_functions(const fs::path& plugin) {
  MOESTRO_ASSIGN_OR_RETURN(const CudaPlugin cuda, load(plugin));
  return cuda.functions();
}

Status check_device(const std::string& device, const fs::path& cuda_plugin) {
  const auto spec = config::parse_device(device);
  if (!spec.is_ok()) return spec.status().with_context("--device (workers.device)");
  if (spec->kind == config::DeviceSpec::Kind::kCuda) return check_cuda(spec->cuda_index, cuda_plugin).with_context("--device " + device);
  return Status::ok();
}

}  // namespace moestro::kernels
