#include "kernels/cuda/cuda_memory.h"

#include <cstring>

namespace moestro::kernels::cuda {

// Not noted as the queue's errors: whoever asks for too much says so in the words of what it was for.

void* PinnedMemory::allocate(int64_t bytes) {
  void* memory = nullptr;
  if (queue_.error != 0 || queue_.functions.allocate_pinned(static_cast<uint64_t>(bytes), &memory) != 0) return nullptr;
  return memory;
}

void PinnedMemory::release(void* memory) { (void)queue_.functions.release_pinned(memory); }

void* CudaMemory::allocate(int64_t bytes) {
  void* memory = nullptr;
  if (queue_.error != 0 || queue_.functions.allocate(static_cast<uint64_t>(bytes), &memory) != 0) return nullptr;
  return memory;
}

void CudaMemory::release(void* memory) {
  // Kernels that were queued may still use it.
  (void)queue_.functions.wait_stream(queue_.stream);
  (void)queue_.functions.release(memory);
}

void CudaMemory::copy_in(void* to, const void* host, int64_t bytes) {
  staging_.copy_in(to, host, static_cast<uint64_t>(bytes));
}

void CudaMemory::copy_out(void* host, const void* from, int64_t bytes) {
  if (queue_.error == 0 &&
      queue_.note("copy_out", queue_.functions.copy_out(host, from, static_cast<uint64_t>(bytes), queue_.stream)) &&
      queue_.note("wait_stream", queue_.functions.wait_stream(queue_.stream)))
    return;
  std::memset(host, 0, static_cast<size_t>(bytes));
}

void CudaMemory::copy(void* to, const void* from, int64_t bytes) {
  if (queue_.error == 0)
    queue_.note("copy_within", queue_.functions.copy_within(to, from, static_cast<uint64_t>(bytes), queue_.stream));
}

void CudaMemory::fill(void* to, int value, int64_t bytes) {
  if (queue_.error == 0)
    queue_.note("fill", queue_.functions.fill(to, value, static_cast<uint64_t>(bytes), queue_.stream));
}

}  // namespace moestro::kernels::cuda
