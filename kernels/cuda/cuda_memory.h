#pragma once
// A device's memory for the engine's buffers, in the order of CudaOps' stream.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/memory.h"

namespace moestro::kernels::cuda {

/// Pinned host memory: copies between it and the device need no staging.
class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(DeviceQueue& queue) : queue_(queue) {}
  bool is_host() const override { return true; }
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  void copy_in(void* to, const void* host, int64_t bytes) override { host_memory().copy_in(to, host, bytes); }
  void copy_out(void* host, const void* from, int64_t bytes) override { host_memory().copy_out(host, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override { host_memory().copy(to, from, bytes); }
  void fill(void* to, int value, int64_t bytes) override { host_memory().fill(to, value, bytes); }
  Memory& host_side() override { return *this; }

 private:
  DeviceQueue& queue_;
};

/// Errors are reported by CudaOps (status()). After an error nothing is copied, and data that is copied out is 0.
class CudaMemory final : public Memory {
 public:
  /// `ops` outlives it.
  explicit CudaMemory(CudaOps& ops) : queue_(ops.queue()), staging_(ops.staging()), pinned_(queue_) {}

  bool is_host() const override { return false; }
  void* allocate(int64_t bytes) override;
  void release(void* memory) override;
  void copy_in(void* to, const void* host, int64_t bytes) override;
  void copy_out(void* host, const void* from, int64_t bytes) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void fill(void* to, int value, int64_t bytes) override;
  Memory& host_side() override { return pinned_; }

 private:
  DeviceQueue& queue_;
  StagingRing& staging_;
  PinnedMemory pinned_;
};

/// Host memory that a device writes without staging; freed by the destructor. Null if there is none.
template <typename T>
class Pinned {
 public:
  Pinned(CudaOps& ops, int64_t count) : queue_(ops.queue()) {
    void* memory = nullptr;
    if (count > 0 && queue_.note("allocate_pinned",
                                 queue_.functions.allocate_pinned(static_cast<uint64_t>(count) * sizeof(T), &memory)))
      data_ = static_cast<T*>(memory);
  }
  ~Pinned() {
    if (data_ != nullptr) (void)queue_.functions.release_pinned(data_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  T* data() const { return data_; }

 private:
  DeviceQueue& queue_;
  T* data_ = nullptr;
};

}  // namespace moestro::kernels::cuda
