#pragma once
// The speed of a drive without a store: io_uring alone, as the baseline of measurements.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"

namespace moestro::store {

struct RawRead {
  uint32_t file = 0;  ///< index into the descriptors
  uint64_t offset = 0;
  std::byte* into = nullptr;
  uint32_t length = 0;
};

/// One ring with registered files, and registered memory if that is allowed. One thread.
class RawReads {
 public:
  /// `fds` and `memory` (the target of all reads) outlive it. kUnsupported if the kernel refuses io_uring.
  static Result<std::unique_ptr<RawReads>> create(std::span<const int> fds, std::span<std::byte> memory,
                                                  uint32_t depth);
  virtual ~RawReads() = default;
  /// Reads all, `depth` of them in flight, and waits for the last. A read that fails or is short is an error: files and
  /// offsets are known to be good.
  virtual Status run(std::span<const RawRead> reads) = 0;
  virtual bool registered() const = 0;
};

}  // namespace moestro::store
