#include "common/tier/link_pace.h"

#include <algorithm>
#include <limits>

namespace moestro::tier {
namespace {

constexpr double kMeasuredBytes = 64e6;  ///< bytes over which a measured rate forgets

constexpr double kComputed = 1024;       ///< experts over which a measured time forgets

double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void LinkPace::carried(uint64_t bytes, Nanos took) {
  sum_bytes_ += static_cast<double>(bytes), sum_seconds_ += seconds(took);
  if (sum_seconds_ > 0) bytes_per_s_ = sum_bytes_ / sum_seconds_;
  if (sum_bytes_ > kMeasuredBytes) sum_bytes_ /= 2, sum_seconds_ /= 2;
}

void LinkPace::computed(Nanos took) {
  computed_ += 1, computed_s_ += seconds(took);
  if (computed_ > kComputed) computed_ /= 2, computed_s_ /= 2;
}

double LinkPace::room(Nanos now, int32_t distance, bool scan) const {
  const Nanos each = layers_.per_layer(scan);
  if (bytes_per_s_ <= 0 || each == Nanos{0}) return std::numeric_limits<double>::infinity();
  return std::max(0.0, seconds(each * distance - (now - layers_.last()))) * bytes_per_s_;
}

Nanos LinkPace::time_of(uint64_t bytes) const {
  if (bytes_per_s_ <= 0) return latency_;
  return latency_ + Nanos(static_cast<int64_t>(static_cast<double>(bytes) / bytes_per_s_ * 1e9));
}

}  // namespace moestro::tier
