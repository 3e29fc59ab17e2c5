// Memory, streams and events of the plugin, over CUDA's runtime.

#include <cuda_runtime.h>

#include <cstdio>

#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels::cuda {
namespace {

cudaStream_t stream_of(MoestroCudaStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(MoestroCudaEvent event) { return static_cast<cudaEvent_t>(event); }

/// What a call may refuse is said by it alone: CUDA also keeps it as the thread's last error, where the next launch of
/// a kernel would find it.
cudaError_t taken(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

const char* error_text(MoestroCudaResult result) {
  if (result == MOESTRO_CUDA_REFUSED) return "the CUDA plugin has no kernel for this";
  if (result == MOESTRO_CUDA_NOT_READY) return "not ready";
  return cudaGetErrorString(static_cast<cudaError_t>(result));
}
MoestroCudaResult use_device(int32_t index) { return cudaSetDevice(index); }
MoestroCudaResult start_early(int32_t on) {
  int device = 0, major = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  early_starts = on != 0 && error == cudaSuccess && major >= 9;
  return error;
}

MoestroCudaResult memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  size_t free_now = 0, total = 0;
  const cudaError_t error = cudaMemGetInfo(&free_now, &total);
  *free_bytes = free_now;
  *total_bytes = total;
  return error;
}
MoestroCudaResult allocate(uint64_t bytes, void** device) { return taken(cudaMalloc(device, bytes)); }
MoestroCudaResult release(void* device) { return cudaFree(device); }
MoestroCudaResult allocate_pinned(uint64_t bytes, void** host) {
  return taken(cudaHostAlloc(host, bytes, cudaHostAllocPortable));
}
MoestroCudaResult release_pinned(void* host) { return cudaFreeHost(host); }
MoestroCudaResult register_host(void* host, uint64_t bytes, int32_t read_only) {
  return taken(cudaHostRegister(host, bytes, cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0u)));
}
MoestroCudaResult unregister_host(void* host) { return cudaHostUnregister(host); }

MoestroCudaResult make_stream(int32_t urgent, MoestroCudaStream* stream) {
  int least = 0, most = 0;
  if (const cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &most); error != cudaSuccess) return error;
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent ? most : least);
  *stream = made;
  return error;
}
MoestroCudaResult end_stream(MoestroCudaStream stream) { return cudaStreamDestroy(stream_of(stream)); }
MoestroCudaResult wait_stream(MoestroCudaStream stream) { return cudaStreamSynchronize(stream_of(stream)); }

MoestroCudaResult make_event(int32_t kind, MoestroCudaEvent* event) {
  cudaEvent_t made = nullptr;
  const unsigned timing = (kind & MOESTRO_CUDA_EVENT_TIMED) != 0 ? cudaEventDefault : cudaEventDisableTiming,
                 waiting = (kind & MOESTRO_CUDA_EVENT_SLEEPING) != 0 ? cudaEventBlockingSync : cudaEventDefault;
  const cudaError_t error = cudaEventCreateWithFlags(&made, timing | waiting);
  *event = made;
  return error;
}
MoestroCudaResult end_event(MoestroCudaEvent event) { return cudaEventDestroy(event_of(event)); }
MoestroCudaResult record_event(MoestroCudaEvent event, MoestroCudaStream stream) {
  return cudaEventRecord(event_of(event), stream_of(stream));
}
MoestroCudaResult query_event(MoestroCudaEvent event) {
  const cudaError_t error = taken(cudaEventQuery(event_of(event)));
  return error == cudaErrorNotReady ? MOESTRO_CUDA_NOT_READY : static_cast<MoestroCudaResult>(error);
}
MoestroCudaResult wait_event(MoestroCudaEvent event) { return cudaEventSynchronize(event_of(event)); }
MoestroCudaResult elapsed(float* ms, MoestroCudaEvent begin, MoestroCudaEvent end) {
  return cudaEventElapsedTime(ms, event_of(begin), event_of(end));
}
MoestroCudaResult stream_waits(MoestroCudaStream stream, MoestroCudaEvent event) {
  return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
}

MoestroCudaResult copy_in(void* device, const void* host, uint64_t bytes, MoestroCudaStream stream) {
  return cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(stream));
}
MoestroCudaResult copy_out(void* host, const void* device, uint64_t bytes, MoestroCudaStream stream) {
  return cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(stream));
}
MoestroCudaResult copy_within(void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream));
}
MoestroCudaResult fill(void* device, int32_t value, uint64_t bytes, MoestroCudaStream stream) {
  return cudaMemsetAsync(device, value, bytes, stream_of(stream));
}

// Graphs, by the reference of CUDA's runtime (12 and later):
// - Thread-local: the link's thread goes on copying, recording and asking on streams of its own while this one
//   captures. The streams are non-blocking, so nothing meets the captured one through the null stream either.
// - What operations do in addition to launching: cudaFuncSetAttribute (simt.h) changes a function and queues nothing;
//   cudaGetLastError reads a variable. Neither is among the calls that a capture forbids. What is asked of the device
//   (resident_blocks, cuBLASLt's choices) is kept from the first time, which is not captured. None of them allocates.
// - cudaMemcpyAsync between device and pinned memory, cudaMemcpyAsync within the device and cudaMemsetAsync become
//   nodes with addresses and sizes as they are; a kernel's arguments are copied into its node. Memory is read at
//   launch.
// - Kernels may be loaded lazily, at a first launch. A segment is captured only when it has been queued before
//   (cuda_graphs.h), so all of its are there.
// - cudaStreamEndCapture also ends a capture that something has made void, and gives
//   cudaErrorStreamCaptureInvalidated; what the refused calls have left as the thread's last error is taken, or the
//   next kernel's launch would find it.
// - One executable graph never runs twice at a time: cudaGraphLaunch orders it behind its launch before.
//   cudaGraphExecDestroy of one that is under way frees it when it has ended.
MoestroCudaResult begin_capture(MoestroCudaStream stream) {
  return taken(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal));
}
MoestroCudaResult end_capture(MoestroCudaStream stream, MoestroCudaGraph* graph) {
  cudaGraph_t captured = nullptr;
  if (const cudaError_t error = cudaStreamEndCapture(stream_of(stream), &captured); error != cudaSuccess)
    return taken(error);
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cudaGraphInstantiateWithFlags(&made, captured, 0);
  (void)cudaGraphDestroy(captured);
  *graph = made;
  return taken(error);
}
MoestroCudaResult launch_graph(MoestroCudaGraph graph, MoestroCudaStream stream) {
  return taken(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)));
}
MoestroCudaResult end_graph(MoestroCudaGraph graph) {
  return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

MoestroCudaResult use_dense_library(int32_t wanted, char* text, int32_t text_bytes) {
  std::string words;
  std::unique_ptr<DenseLibrary> library;
  if (wanted != 0) library = DenseLibrary::load({"libcublasLt.so.13", "libcublasLt.so.12"}, words);
  std::snprintf(text, static_cast<size_t>(text_bytes), "%s", words.c_str());
  const bool is_refused = wanted != 0 && !library;
  set_dense_library(std::move(library));
  (void)cudaGetLastError();  // what it has tried
  return is_refused ? MOESTRO_CUDA_REFUSED : 0;
}

}  // namespace

const MoestroCudaFunctions* functions() {
  static const MoestroCudaFunctions table = {
      error_text,     use_device,    start_early,  memory_info,     allocate,    release,    allocate_pinned,
      release_pinned, register_host, unregister_host, make_stream, end_stream, wait_stream,
      make_event,     end_event,     record_event,    query_event, wait_event, elapsed,
      stream_waits,   copy_in,       copy_out,        copy_within, fill,       begin_capture,
      end_capture,    launch_graph,  end_graph,       use_dense_library, all_ops()};
  return &table;
}

}  // namespace moestro::kernels::cuda

extern "C" __attribute__((visibility("default"))) const MoestroCudaFunctions* moestro_cuda_functions() {
  return moestro::kernels::cuda::functions();
}
