#include "store/machine/drive_pace.h"

#include <algorithm>
#include <utility>

#include "common/tier/prefetch_rules.h"

namespace moestro::store {

void DrivePace::at(Nanos now, bool reading) {
  if (reading) busy_ += std::max(now - now_, Nanos{0});
  now_ = std::max(now, now_);
}

void DrivePace::carried(uint64_t bytes) {
  if (busy_ > Nanos{0}) pace_.carried(bytes, std::exchange(busy_, Nanos{0}));
}

bool DrivePace::in_time(double bytes, Nanos due) const {
  return bytes_per_s() <= 0 || now_ + pace_.time_of(static_cast<uint64_t>(bytes)) <= due;
}

std::optional<Nanos> DrivePace::may_wait(double bytes, Nanos due) const {
  if (bytes_per_s() <= 0) return std::nullopt;
  const Nanos begin = due - pace_.time_of(static_cast<uint64_t>(tier::kEarly * bytes));
  return begin > now_ ? std::optional(begin) : std::nullopt;
}

}  // namespace moestro::store
