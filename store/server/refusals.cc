#include "store/server/refusals.h"

#include <algorithm>
#include <utility>

namespace moestro::store {

std::optional<uint64_t> RefusalLog::refused(TimePoint now) {
  ++count_;
  last_ = now;
  const auto earned = (now - filled_) / kEach;
  if (earned > 0) {
    tokens_ = static_cast<uint32_t>(std::min<int64_t>(kBurst, tokens_ + std::min<int64_t>(earned, kBurst)));
    filled_ = now;
  }
  if (tokens_ == 0) {
    ++unsaid_;
    return std::nullopt;
  }
  --tokens_;
  return std::exchange(unsaid_, 0);
}

}  // namespace moestro::store
