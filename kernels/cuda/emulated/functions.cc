// The plugin's functions where device memory is the host's and a stream runs whatever is queued on it at once.

#include "kernels/cuda/emulated/functions.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/emulated/emulator.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda::emulated {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 40;
constexpr std::size_t kAlignment = 256;  // cudaMalloc's
constexpr MoestroCudaResult kErrorMemoryAllocation = 2;  // cudaErrorMemoryAllocation
char any_stream, any_event;
/// A captured stream.
using Graph = std::vector<std::function<void()>>;

const char* error_text(MoestroCudaResult result) {
  if (result == MOESTRO_CUDA_REFUSED) return "the CUDA plugin has no kernel for this";
  return result == kErrorMemoryAllocation ? "out of memory" : "an emulated error";
}
MoestroCudaResult use_device(int32_t) { return 0; }
MoestroCudaResult memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = *total_bytes = kMemoryBytes;
  return 0;
}
/// What was never written is NaN.
MoestroCudaResult allocate(uint64_t bytes, void** memory) {
  const uint64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *memory = bytes > kMemoryBytes ? nullptr : std::aligned_alloc(kAlignment, padded);
  if (*memory == nullptr) return kErrorMemoryAllocation;
  std::memset(*memory, 0xff, padded);
  return 0;
}
MoestroCudaResult release(void* memory) {
  std::free(memory);
  return 0;
}
MoestroCudaResult register_host(void*, uint64_t, int32_t) { return 0; }
MoestroCudaResult unregister_host(void*) { return 0; }

MoestroCudaResult make_stream(int32_t, MoestroCudaStream* stream) {
  *stream = &any_stream;
  return 0;
}
MoestroCudaResult on_stream(MoestroCudaStream) { return 0; }
MoestroCudaResult make_event(int32_t, MoestroCudaEvent* event) {
  *event = &any_event;
  return 0;
}
MoestroCudaResult on_event(MoestroCudaEvent) { return 0; }
MoestroCudaResult on_both(void*, void*) { return 0; }
MoestroCudaResult elapsed(float* ms, MoestroCudaEvent, MoestroCudaEvent) {
  *ms = 0;
  return 0;
}

/// What a thread captures is its own stream's: copies of others run.
/// Aligned: where thread-local data is a single byte, mold 1.10 at times links a program that does not start.
alignas(16) thread_local bool captures = false;
template <typename Work>
MoestroCudaResult queue(Work work) {
  if (captures) capture->push_back(work);
  else work();
  return 0;
}
MoestroCudaResult copy(void* to, const void* from, uint64_t bytes, MoestroCudaStream) {
  return queue([=] { std::memcpy(to, from, bytes); });
}
MoestroCudaResult fill(void* memory, int32_t value, uint64_t bytes, MoestroCudaStream) {
  return queue([=] { std::memset(memory, value, bytes); });
}

MoestroCudaResult begin_capture(MoestroCudaStream) {
  capture = new Graph;
  captures = true;
  return 0;
}
MoestroCudaResult end_capture(MoestroCudaStream, MoestroCudaGraph* graph) {
  *graph = std::exchange(capture, nullptr);
  captures = false;
  return 0;
}
MoestroCudaResult launch_graph(MoestroCudaGraph graph, MoestroCudaStream) {
  for (const auto& work : *static_cast<Graph*>(graph)) work();
  return 0;
}
MoestroCudaResult end_graph(MoestroCudaGraph graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}

}  // namespace

const MoestroCudaFunctions& functions() {
  static const MoestroCudaFunctions table = {
      error_text, use_device, memory_info, allocate, release,  allocate, release,  register_host, unregister_host, make_stream, on_stream,
      on_stream,  make_event, on_event,    on_both,  on_event, on_event, elapsed,  on_both,       copy,            copy,        copy,
      fill,       begin_capture, end_capture, launch_graph, end_graph, all_ops()};
  return table;
}

}  // namespace moestro::kernels::cuda::emulated
