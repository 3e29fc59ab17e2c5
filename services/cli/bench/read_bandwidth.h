#pragma once
// What this machine's memory delivers to a plain read loop.

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "common/clock.h"

namespace moestro::cli {

/// A buffer that no cache holds, read by `threads` threads at once, each its own part.
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int threads, size_t bytes = size_t{512} << 20);
  /// How long one pass over the buffer took.
  Nanos pass(const Clock& clock);
  double pass_bytes() const { return static_cast<double>(words_) * sizeof(unsigned long long); }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  int threads_;
  size_t words_;
  std::unique_ptr<unsigned long long[], Free> buffer_;
};

}  // namespace moestro::cli
