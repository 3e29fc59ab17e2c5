#include "store/machine/drive_pace.h"

#include <algorithm>
#include <utility>

#include "common/tier/prefetch_rules.h"

namespace moestro::store {
namespace {
constexpr double kNew = 1.0 / 64;                       ///< weight of the newest pause in the mean
constexpr Nanos kNobodyAsks = std::chrono::seconds(1);  ///< a longer pause is none of a step
}

void DrivePace::at(Nanos now, bool reading, bool demanded) {
  const Nanos passed = std::max(now - now_, Nanos{0});
  if (passed == Nanos{0}) return;  // how often it is called at one time makes no difference
  now_ += passed;
  if (reading) busy_ += passed;
  if (!demanded) {
    pause_ += passed;
  } else if (const Nanos pause = std::exchange(pause_, Nanos{0}); pause > Nanos{0} && pause < kNobodyAsks) {
    const double s = std::chrono::duration<double>(pause).count();
    pause_mean_s_ += (s - pause_mean_s_) * (pause_mean_s_ > 0 ? kNew : 1);
  }
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

double DrivePace::break_even(double read_bytes) const {
  if (bytes_per_s() <= 0 || pause_mean_s_ <= 0) return 0;
  const double read_s = read_bytes / bytes_per_s();
  return read_s / (pause_mean_s_ + read_s);
}

}  // namespace moestro::store
