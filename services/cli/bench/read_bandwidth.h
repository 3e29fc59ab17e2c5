#pragma once
// What this machine's memory delivers to a plain read loop.

#include <cstddef>
#include <vector>

#include "common/clock.h"

namespace moestro::cli {

/// A buffer that no cache holds, read by `threads` threads at once, each its own part.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int threads, size_t bytes = size_t{512} << 20);
  /// Bytes per second of one pass over the buffer.
  double measure(const Clock& clock);

 private:
  int threads_;
  std::vector<unsigned long long> buffer_;
};

}  // namespace moestro::cli
