#pragma once
// A range of memory larger than any cache, filled with numbers that are valid weights in every precision.

#include <cstdint>
#include <functional>
#include <memory>

#include "common/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace moestro::kernels::limits {

class StreamedMemory {
 public:
  /// Touches every page with the pool's threads; `progress` gets the number of bytes done. kExhausted if there is not
  /// enough.
  static Result<std::unique_ptr<StreamedMemory>> create(int64_t bytes, cpu::ThreadPool& pool,
                                                        const std::function<void(int64_t done)>& progress = nullptr);
  ~StreamedMemory();
  StreamedMemory(const StreamedMemory&) = delete;
  StreamedMemory& operator=(const StreamedMemory&) = delete;

  int64_t bytes() const { return bytes_; }
  const char* data() const { return data_; }

  /// Reads [first, first + count) once with all threads of the pool, by the widest loads of the machine.
  void read(int64_t first, int64_t count, cpu::ThreadPool& pool) const;
  /// A weight of at most this many bytes that begins at `first`, followed by its groups' parameters. `used`: all of its
  /// bytes.
  Weight weight(int64_t first, int64_t bytes_max, DType dtype, int64_t cols, int64_t& used) const;

 private:
  StreamedMemory() = default;
  char* data_ = nullptr;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace moestro::kernels::limits
