#pragma once
// What the CUDA plugin exports. C and plain data: the plugin and the program may come from different compilers.

#include <stdint.h>

#include "kernels/plugin/op_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Raised when anything below or in op_abi.h changes; a program refuses a plugin of another version.
#define MOESTRO_CUDA_PLUGIN_VERSION 9

/// The names under which the three functions are looked up.
#define MOESTRO_CUDA_PLUGIN_VERSION_SYMBOL "moestro_cuda_plugin_version"
#define MOESTRO_CUDA_PROBE_SYMBOL "moestro_cuda_probe"
#define MOESTRO_CUDA_FUNCTIONS_SYMBOL "moestro_cuda_functions"

struct MoestroCudaDevice {
  char name[256];  ///< ends with a zero
  int32_t major;   ///< compute capability
  int32_t minor;
  uint64_t free_bytes;   ///< without what this probe itself takes
  uint64_t total_bytes;
  char pci[32];          ///< where it sits, as /sys/bus/pci/devices names it: 0000:17:00.0; ends with a zero
  char failed[256];      ///< CUDA's message if the device cannot be used; empty: it can; ends with a zero
};

typedef int32_t (*MoestroCudaPluginVersion)(void);

/// Fills up to `devices_max` devices and returns how many there are; 0 is possible. A device that fails has its own
/// message. Below 0: CUDA gave an error for all of them, with its text in `error` (`error_bytes` of room, ends with a
/// zero).
typedef int32_t (*MoestroCudaProbe)(struct MoestroCudaDevice* devices, int32_t devices_max, char* error,
                                    int32_t error_bytes);

/// Opaque: a cudaEvent_t.
typedef void* MoestroCudaEvent;
/// Kinds of events, to be added up. Timed: elapsed() can be used with it, at a small cost. Sleeping: wait_event sleeps
/// until it is reached, and wakes some microseconds later; it uses no CPU meanwhile.
#define MOESTRO_CUDA_EVENT_TIMED 1
#define MOESTRO_CUDA_EVENT_SLEEPING 2
/// Opaque: a cudaGraphExec_t.
typedef void* MoestroCudaGraph;
/// Of event_query: what was queued before the event has not ended yet.
#define MOESTRO_CUDA_NOT_READY (-2)

/// Memory, streams and events of the device that the calling thread has selected, and the operations on them. Results
/// are those of operations.
struct MoestroCudaFunctions {
  /// Text of a result that is not 0; never freed.
  const char* (*error_text)(MoestroCudaResult result);
  /// Selects the device for this thread's later calls.
  MoestroCudaResult (*use_device)(int32_t index);
  /// Whether a kernel may begin while the one before it ends (programmatic dependent launches; initially 0). Results
  /// are the same. Without effect on devices before compute capability 9.0. Before any operation.
  MoestroCudaResult (*start_early)(int32_t on);

  MoestroCudaResult (*memory_info)(uint64_t* free_bytes, uint64_t* total_bytes);
  MoestroCudaResult (*allocate)(uint64_t bytes, void** device);
  MoestroCudaResult (*release)(void* device);
  /// Pinned host memory, which copies reach without staging.
  MoestroCudaResult (*allocate_pinned)(uint64_t bytes, void** host);
  MoestroCudaResult (*release_pinned)(void* host);
  /// Pins memory of the caller; `read_only`: the mapping cannot be written.
  MoestroCudaResult (*register_host)(void* host, uint64_t bytes, int32_t read_only);
  MoestroCudaResult (*unregister_host)(void* host);

  MoestroCudaResult (*make_stream)(int32_t urgent, MoestroCudaStream* stream);
  MoestroCudaResult (*end_stream)(MoestroCudaStream stream);
  MoestroCudaResult (*wait_stream)(MoestroCudaStream stream);
  /// `kind`: MOESTRO_CUDA_EVENT_..., or 0.
  MoestroCudaResult (*make_event)(int32_t kind, MoestroCudaEvent* event);
  MoestroCudaResult (*end_event)(MoestroCudaEvent event);
  MoestroCudaResult (*record_event)(MoestroCudaEvent event, MoestroCudaStream stream);
  MoestroCudaResult (*query_event)(MoestroCudaEvent event);
  MoestroCudaResult (*wait_event)(MoestroCudaEvent event);
  /// Time between two timed events that have been reached.
  MoestroCudaResult (*elapsed)(float* ms, MoestroCudaEvent begin, MoestroCudaEvent end);
  /// The stream continues when the event has been reached; the host does not wait.
  MoestroCudaResult (*stream_waits)(MoestroCudaStream stream, MoestroCudaEvent event);

  MoestroCudaResult (*copy_in)(void* device, const void* host, uint64_t bytes, MoestroCudaStream stream);
  MoestroCudaResult (*copy_out)(void* host, const void* device, uint64_t bytes, MoestroCudaStream stream);
  MoestroCudaResult (*copy_within)(void* to, const void* from, uint64_t bytes, MoestroCudaStream stream);
  /// Every byte becomes `value`.
  MoestroCudaResult (*fill)(void* device, int32_t value, uint64_t bytes, MoestroCudaStream stream);

  /// Work that this thread queues on the stream from here to end_capture() is not run but kept as a graph, with its
  /// pointers and sizes: operations, copies to and from pinned memory, fills. Calls that wait, allocate, query or
  /// record are refused meanwhile, and then there is no graph.
  MoestroCudaResult (*begin_capture)(MoestroCudaStream stream);
  MoestroCudaResult (*end_capture)(MoestroCudaStream stream, MoestroCudaGraph* graph);
  /// Runs the graph after the work in the stream and after its own previous launch.
  MoestroCudaResult (*launch_graph)(MoestroCudaGraph graph, MoestroCudaStream stream);
  /// A launch in progress continues.
  MoestroCudaResult (*end_graph)(MoestroCudaGraph graph);

  /// With `wanted`: matmul uses NVIDIA's library for products of many tokens from now on, where it is installed; it is
  /// loaded for this device. MOESTRO_CUDA_REFUSED: there is none that can be used. `text`: its name and version, or why
  /// not. Without `wanted`: it is no longer used.
  MoestroCudaResult (*use_dense_library)(int32_t wanted, char* text, int32_t text_bytes);

  struct MoestroCudaOps ops;
};

typedef const struct MoestroCudaFunctions* (*MoestroCudaGetFunctions)(void);

#ifdef __cplusplus
}
#endif
