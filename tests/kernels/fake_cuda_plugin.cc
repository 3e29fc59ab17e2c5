// A library in place of the CUDA plugin, so that its loader is tested where there is no CUDA. What it is, the build
// says (FAKE_...).

#include <csignal>
#include <cstdio>
#include <cstring>

#include "kernels/plugin/plugin_abi.h"

#ifdef FAKE_STRANGER
extern "C" int32_t something_else() { return 1; }
#else

extern "C" int32_t moestro_cuda_plugin_version() { return MOESTRO_CUDA_PLUGIN_VERSION + FAKE_VERSION_AHEAD; }

extern "C" int32_t moestro_cuda_probe(MoestroCudaDevice* devices, int32_t devices_max, char* error,
                                      int32_t error_bytes) {
  if (FAKE_DEVICES < -1) std::raise(SIGKILL);  // as a driver may
  if (FAKE_DEVICES < 0) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s",
                  "CUDA driver version is insufficient for CUDA runtime version");
    return -1;
  }
  for (int32_t i = 0; i < FAKE_DEVICES && i < devices_max; ++i) {
    std::snprintf(devices[i].name, sizeof devices[i].name, "Fake %d", i);
    devices[i].major = i == 2 ? 7 : 9;
    devices[i].minor = i;
    devices[i].free_bytes = i == 3 ? 1 << 20 : uint64_t{3} << 30;
    devices[i].total_bytes = uint64_t{4} << 30;
    if (i > 0) std::snprintf(devices[i].pci, sizeof devices[i].pci, "0000:%02d:00.0", i);
  }
  return FAKE_DEVICES;
}

extern "C" const MoestroCudaFunctions* moestro_cuda_functions() {
  static const MoestroCudaFunctions none{};
  return &none;
}
#endif
