#include "store/server/scrubber.h"

#include <algorithm>

namespace moestro::store {

void Scrubber::looked_at(uint64_t bytes, TimePoint now) {
  bytes_ += bytes;
  due_ = std::max(due_, now - std::chrono::milliseconds(100)) +
         std::chrono::nanoseconds(
             static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_s_)));
}

}  // namespace moestro::store
