#pragma once
// The memory that a backend's operations compute on, host or device, behind one interface.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace moestro::kernels {

/// One caller, the same as for the backend's operations. Copies and fills run after what that caller has queued before,
/// and before what it queues later.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Whether the host can read and write it directly.
  virtual bool is_host() const = 0;
  /// Aligned to at least 64 bytes and not initialised. Null: there is not enough.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  /// `host` may be reused on return.
  virtual void copy_in(void* to, const void* host, int64_t bytes) = 0;
  /// The bytes have arrived on return.
  virtual void copy_out(void* host, const void* from, int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Every byte becomes `value`.
  virtual void fill(void* to, int value, int64_t bytes) = 0;
  /// Host memory with the fastest copies to and from this memory; exists as long as this object.
  virtual Memory& host_side() = 0;
};

Memory& host_memory();

/// Buffers of one owner, freed together. After one allocation fails, all later ones are null, and status() says how
/// much was requested.
class Buffers {
 public:
  explicit Buffers(Memory& memory) : memory_(&memory) {}
  Buffers(Buffers&& other) noexcept
      : memory_(other.memory_), made_(std::exchange(other.made_, {})), bytes_(other.bytes_), refused_(other.refused_) {}
  Buffers& operator=(Buffers&& other) noexcept {
    std::swap(memory_, other.memory_), std::swap(made_, other.made_), std::swap(bytes_, other.bytes_),
        std::swap(refused_, other.refused_);
    return *this;
  }
  ~Buffers();

  /// `count` values, all bytes 0. Null for a count of 0.
  template <typename T>
  T* make(int64_t count) {
    return static_cast<T*>(make_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  Memory& memory() const { return *memory_; }
  int64_t bytes() const { return bytes_; }  ///< of all
  Status status() const;

 private:
  void* make_bytes(int64_t bytes);

  Memory* memory_;
  std::vector<void*> made_;
  int64_t bytes_ = 0;
  int64_t refused_ = 0;
};

}  // namespace moestro::kernels
