#include "orchestrator/control/retry_after.h"

#include <algorithm>

namespace moestro::orchestrator {

namespace {
constexpr size_t kEndsMax = 64;
constexpr std::chrono::seconds kLeast{1}, kMost{600};
}  // namespace

void RetryAfter::began(Nanos now) {
  since_ = now;
  ends_.clear();
}

void RetryAfter::ended(Nanos now) {
  ends_.push_back(now);
  if (ends_.size() <= kEndsMax) return;
  since_ = ends_.front();
  ends_.pop_front();
}

std::chrono::seconds RetryAfter::refused(Nanos now, size_t queued) {
  // Up to now, not to the last end: where nothing ends any more the rate falls.
  const Nanos each = std::min<Nanos>((now - since_) / static_cast<int64_t>(std::max<size_t>(ends_.size(), 1)), kMost);
  promised_ = std::clamp(promised_ + each, now + each, now + each * static_cast<int64_t>(std::max<size_t>(queued, 1)));
  return std::clamp(std::chrono::ceil<std::chrono::seconds>(promised_ - now), kLeast, kMost);
}

}  // namespace moestro::orchestrator
