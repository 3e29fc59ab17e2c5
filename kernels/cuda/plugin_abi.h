#pragma once
// What the CUDA plugin exports. C and plain data: the plugin and the program may come from different compilers.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Raised when anything below changes; a program refuses a plugin of another version.
#define MOESTRO_CUDA_PLUGIN_VERSION 1

/// The names under which the two functions are looked up.
#define MOESTRO_CUDA_PLUGIN_VERSION_SYMBOL "moestro_cuda_plugin_version"
#define MOESTRO_CUDA_PROBE_SYMBOL "moestro_cuda_probe"

struct MoestroCudaDevice {
  char name[256];  ///< ends with a zero
  int32_t major;   ///< compute capability
  int32_t minor;
  uint64_t free_bytes;   ///< beside what this probe itself takes
  uint64_t total_bytes;
};

typedef int32_t (*MoestroCudaPluginVersion)(void);

/// Fills up to `devices_max` devices and returns how many there are; 0 is possible. Below 0: CUDA gave an error, whose text is in `error`
/// (`error_bytes` of room, ends with a zero).
typedef int32_t (*MoestroCudaProbe)(struct MoestroCudaDevice* devices, int32_t devices_max, char* error, int32_t error_bytes);

#ifdef __cplusplus
}
#endif
