// The plugin's functions where device memory is memory of the host, which only kernels and copies may touch.

#include "kernels/cuda/emulated/functions.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator/device_region.h"
#include "kernels/cuda/emulator/streams.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda::emulated {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 40;
constexpr uint64_t kFewBytes = 64 << 10;  // copied in with others, at once
constexpr std::size_t kAlignment = 256;  // of pinned memory
constexpr MoestroCudaResult kErrorMemoryAllocation = 2;  // cudaErrorMemoryAllocation
constexpr MoestroCudaResult kErrorInvalidDevice = 101;   // cudaErrorInvalidDevice

const char* error_text(MoestroCudaResult result) {
  if (result == MOESTRO_CUDA_REFUSED) return "the CUDA plugin has no kernel for this";
  if (result == MOESTRO_CUDA_NOT_READY) return "not ready";
  if (result == kErrorWhileCapturing) return "operation not permitted when stream is capturing";
  if (result == kErrorCaptureIsVoid) return "operation failed due to a previous error during capture";
  if (result == kErrorInvalidValue) return "invalid argument";
  if (result == kErrorOtherDevice) return "invalid resource handle";
  if (result == kErrorInvalidDevice) return "invalid device ordinal";
  if (result == kErrorNotSupported) return "operation not supported";
  return result == kErrorMemoryAllocation ? "out of memory" : "an emulated error";
}
MoestroCudaResult use_device(int32_t index) {
  if (index < 0) return kErrorInvalidDevice;
  emulated::use_device(index);
  return 0;
}
MoestroCudaResult start_early(int32_t) { return 0; }
MoestroCudaResult memory_info(uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = *total_bytes = kMemoryBytes;
  return 0;
}
/// What was never written is NaN.
MoestroCudaResult allocate(uint64_t bytes, void** memory) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  *memory = allocate_device(bytes);
  return *memory == nullptr ? kErrorMemoryAllocation : 0;
}
MoestroCudaResult release(void* memory) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  run_all();
  release_device(memory);
  return 0;
}

/// Host memory that a device reaches by itself, by where it begins.
std::mutex pinned_mutex;
std::map<const char*, uint64_t> pinned;

void note_pinned(void* host, uint64_t bytes) {
  const std::lock_guard lock(pinned_mutex);
  pinned[static_cast<const char*>(host)] = bytes;
}

/// Whether this process may write all of [host, host + bytes), by /proc/self/maps.
bool is_writable(const void* host, uint64_t bytes) {
  auto at = reinterpret_cast<uintptr_t>(host);
  const uintptr_t end = at + bytes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; at < end && std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    char mode[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, mode) != 3 || to <= at) continue;
    if (from > at || mode[1] != 'w') return false;
    at = to;
  }
  return at >= end;
}

/// As strict as the strictest drivers that have been reported: none registers a mapping that cannot be written, as
/// read-only or otherwise.
MoestroCudaResult register_host(void* host, uint64_t bytes, int32_t read_only) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  if (read_only != 0) return kErrorNotSupported;
  if (!is_writable(host, bytes)) return kErrorInvalidValue;
  note_pinned(host, bytes);
  return 0;
}
MoestroCudaResult unregister_host(void* host) {
  const std::lock_guard lock(pinned_mutex);
  pinned.erase(static_cast<const char*>(host));
  return 0;
}
MoestroCudaResult allocate_pinned(uint64_t bytes, void** memory) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const uint64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  *memory = bytes > kMemoryBytes ? nullptr : std::aligned_alloc(kAlignment, padded);
  if (*memory == nullptr) return kErrorMemoryAllocation;
  std::memset(*memory, 0xff, padded);
  note_pinned(*memory, bytes);
  return 0;
}
MoestroCudaResult release_pinned(void* memory) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  (void)unregister_host(memory);
  run_all();
  std::free(memory);
  return 0;
}
bool is_pinned(const void* host, uint64_t bytes) {
  const std::lock_guard lock(pinned_mutex);
  const auto* at = static_cast<const char*>(host);
  auto behind = pinned.upper_bound(at);
  if (behind == pinned.begin()) return false;
  --behind;
  return at + bytes <= behind->first + behind->second;
}

template <typename Work>
MoestroCudaResult queue(MoestroCudaStream stream, Work work) {
  const auto touching = [work = std::move(work)] {
    const DeviceAccess access;
    work();
  };
  if (keeps(stream)) keep(stream, touching);
  else touching();
  return 0;
}
MoestroCudaResult copy_within(void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
  return queue(stream, [=] { std::memcpy(to, from, bytes); });
}
/// Of memory that is not pinned CUDA takes a copy before it returns; in a graph it would be read whenever that is
/// launched.
MoestroCudaResult copy_in(void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
  const bool kept = keeps(stream);
  if (kept ? is_pinned(from, bytes) : bytes > kFewBytes) return copy_within(to, from, bytes, stream);
  if (captures(stream)) return refused_in_capture();
  const auto* begin = static_cast<const char*>(from);
  auto copy = [to, copied = std::vector<char>(begin, begin + bytes)] {
    std::memcpy(to, copied.data(), copied.size());
  };
  if (kept) return queue(stream, std::move(copy));
  when_open(std::move(copy));
  return 0;
}
/// Into memory that is not pinned CUDA has copied when it returns.
MoestroCudaResult copy_out(void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
  if (captures(stream) && !is_pinned(to, bytes)) return refused_in_capture();
  const MoestroCudaResult result = copy_within(to, from, bytes, stream);
  return result != 0 || is_pinned(to, bytes) ? result : wait_stream(stream);
}
MoestroCudaResult fill(void* memory, int32_t value, uint64_t bytes, MoestroCudaStream stream) {
  return queue(stream, [=] { std::memset(memory, value, bytes); });
}

MoestroCudaResult use_dense_library(int32_t wanted, char* text, int32_t text_bytes) {
  std::snprintf(text, static_cast<size_t>(text_bytes), "%s", wanted != 0 ? "an emulated device has none" : "");
  return wanted != 0 ? MOESTRO_CUDA_REFUSED : 0;
}

}  // namespace

const MoestroCudaFunctions& functions() {
  static const MoestroCudaFunctions table = {
      error_text,     use_device,    start_early,  memory_info,     allocate,    release,    allocate_pinned,
      release_pinned, register_host, unregister_host, make_stream, end_stream, wait_stream,
      make_event,     end_event,     record_event,    query_event, wait_event, elapsed,
      stream_waits,   copy_in,       copy_out,        copy_within, fill,       begin_capture,
      end_capture,    launch_graph,  end_graph,       use_dense_library, all_ops()};
  return table;
}

}  // namespace moestro::kernels::cuda::emulated
