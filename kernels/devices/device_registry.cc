#include "kernels/devices/device_registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "common/config/units.h"
#include "common/log.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels {
namespace {

namespace fs = std::filesystem;

using config::readable_size;

constexpr int32_t kDevicesMax = 64;
/// With less than this nothing can be begun, whatever the model.
constexpr uint64_t kLeastFree = 64 << 20;
std::atomic<bool> g_in_use{false};

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
    return unsupported("the CUDA plugin is not built: there is no " + plugin.string() +
                       "; build with `cmake --preset cuda` where nvcc is");
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
    return unsupported(plugin.string() + " is a CUDA plugin of version " + std::to_string(found) +
                       ", this program needs " + std::to_string(MOESTRO_CUDA_PLUGIN_VERSION) + ": build both together");
  if (functions == nullptr) return unsupported(plugin.string() + " is not Moestro's CUDA plugin");
  return CudaPlugin{probe, functions};
}

std::string capability_text(const CudaDevice& device) {
  return std::to_string(device.major) + "." + std::to_string(device.minor);
}

/// "; usable here: cuda:1, cuda:2", or nothing.
std::string usable_ones(const std::vector<CudaDevice>& devices) {
  std::string names;
  for (size_t i = 0; i < devices.size(); ++i)
    if (check_card(devices[i]).is_ok())
      names += (names.empty() ? "; usable here: cuda:" : ", cuda:") + std::to_string(i);
  return names;
}

Status check_memory(const config::CudaDeviceSpec& spec, const CudaDevice& device) {
  const std::string size = "vram=" + config::format_size(spec.vram_bytes);
  if (spec.vram_bytes > device.total_bytes)
    return invalid_argument(size + " is larger than the card: the " + device.name + " has " +
                            readable_size(device.total_bytes));
  const uint64_t wanted = std::max(spec.vram_bytes, kLeastFree);
  if (device.free_bytes >= wanted) return Status::ok();
  return unavailable(
      "only " + readable_size(device.free_bytes) + " of the " + device.name + "'s " +
      readable_size(device.total_bytes) + " are free, and " +
      (spec.vram_bytes > 0 ? size + " is asked for" : "at least " + readable_size(wanted) + " are needed") +
      ": CUDA itself and other processes have the rest (nvidia-smi names them); end those, " +
      (spec.vram_bytes > 0 ? "lower vram=, or take another device" : "or take another device"));
}

/// What CUDA's words leave out: without a driver it, too, says that the driver is insufficient.
Status no_device(const std::string& words) {
  const std::string driver = nvidia_driver();
  return unavailable("no CUDA device" + (words.empty() ? "" : ": " + words) +
                     (driver.empty() ? "; no NVIDIA driver is loaded here" : "; the NVIDIA driver here is " + driver));
}

Status cuda_error(const MoestroCudaFunctions& functions, const std::string& call, MoestroCudaResult result) {
  return result == 0 ? Status::ok() : unavailable("CUDA: " + call + ": " + functions.error_text(result));
}

}  // namespace

fs::path cuda_plugin_path() {
  if (const char* elsewhere = std::getenv("MOESTRO_CUDA_PLUGIN"); elsewhere != nullptr && elsewhere[0] != '\0')
    return elsewhere;
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path() / "libmoestro_cuda.so";
}

Result<std::vector<CudaDevice>> probe_cuda(const fs::path& plugin) {
  MOESTRO_ASSIGN_OR_RETURN(const CudaPlugin cuda, load(plugin));
  std::vector<MoestroCudaDevice> found(kDevicesMax);
  char error[512] = "";
  const int32_t count = cuda.probe(found.data(), kDevicesMax, error, sizeof error);
  if (count < 0) return no_device(error);
  if (count == 0) return no_device("");
  found.resize(static_cast<size_t>(std::min(count, kDevicesMax)));
  std::vector<CudaDevice> devices;
  for (const MoestroCudaDevice& d : found)
    devices.push_back({d.name, d.major, d.minor, d.free_bytes, d.total_bytes, d.pci, d.failed});
  return devices;
}

Result<const MoestroCudaFunctions*> cuda_functions(const fs::path& plugin) {
  MOESTRO_ASSIGN_OR_RETURN(const CudaPlugin cuda, load(plugin));
  return cuda.functions();
}

Status check_card(const CudaDevice& device) {
  if (!device.failed.empty())
    return unavailable("the card" + (device.name.empty() ? "" : ", " + device.name + ",") +
                       " is faulty: " + device.failed + "; see nvidia-smi and dmesg, reset it or take it out");
  if (device.major >= kCudaMajorMin) return Status::ok();
  return unsupported("the card is a " + device.name + " of compute capability " + capability_text(device) +
                     "; the kernels need " + std::to_string(kCudaMajorMin) + ".0");
}

Status check_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices) {
  if (spec.index >= devices.size())
    return invalid_argument("there is no CUDA device " + std::to_string(spec.index) + "; this machine has " +
                            std::to_string(devices.size()) + ", counted from 0");
  const CudaDevice& device = devices[spec.index];
  if (const Status unfit = check_card(device); !unfit.is_ok())
    return Status(unfit.code(), unfit.message() + usable_ones(devices));
  return check_memory(spec, device);
}

Result<std::vector<uint32_t>> usable_cuda(const config::CudaDeviceSpec& spec, const std::vector<CudaDevice>& devices) {
  if (!spec.any) {
    MOESTRO_RETURN_IF_ERROR(check_cuda(spec, devices));
    return std::vector<uint32_t>{spec.index};
  }
  std::vector<uint32_t> usable;
  Status first;
  for (uint32_t i = 0; i < devices.size(); ++i) {
    const Status fits = check_cuda({.index = i, .any = false, .vram_bytes = spec.vram_bytes}, devices);
    if (fits.is_ok()) usable.push_back(i);
    else if (first.is_ok()) first = fits;
  }
  if (usable.empty()) return first;
  return usable;
}

Result<OpenCuda> open_cuda(const config::CudaDeviceSpec& spec, const fs::path& plugin) {
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, look_at_cuda(plugin));
  MOESTRO_ASSIGN_OR_RETURN(const std::vector<uint32_t> usable, usable_cuda(spec, devices));
  for (uint32_t i = 0; i < devices.size(); ++i)
    if (!devices[i].failed.empty()) log::warn("cuda:{} is left alone: {}", i, check_card(devices[i]).message());
  OpenCuda opened{.index = usable.front(), .device = devices[usable.front()]};
  MOESTRO_ASSIGN_OR_RETURN(opened.functions, cuda_functions(plugin));
  const MoestroCudaFunctions& f = *opened.functions;
  g_in_use.store(true);
  MOESTRO_RETURN_IF_ERROR(cuda_error(f, "use_device", f.use_device(static_cast<int32_t>(opened.index))));
  if (const char* early = std::getenv("MOESTRO_CUDA_EARLY"); early != nullptr && std::string_view(early) == "1")
    MOESTRO_RETURN_IF_ERROR(cuda_error(f, "start_early", f.start_early(1)));
  MOESTRO_RETURN_IF_ERROR(
      cuda_error(f, "memory_info", f.memory_info(&opened.device.free_bytes, &opened.device.total_bytes)));
  return opened;
}

bool cuda_in_use() { return g_in_use.load(); }

Status check_device(const std::string& device, const fs::path& cuda_plugin) {
  const auto spec = config::parse_device(device);
  if (!spec.is_ok()) return spec.status().with_context("--device (workers.device)");
  if (spec->kind != config::DeviceSpec::Kind::kCuda) return Status::ok();
  const auto devices = look_at_cuda(cuda_plugin);
  return (devices.is_ok() ? usable_cuda(spec->cuda, *devices).status() : devices.status())
      .with_context("--device " + device);
}

}  // namespace moestro::kernels
