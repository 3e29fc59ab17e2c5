#include "store/arena/backing_progress.h"

#include <cmath>
#include <cstdio>

namespace moestro::store {

std::optional<std::string> BackingProgress::line(uint64_t done, TimePoint now) {
  if (now - said_ < std::chrono::seconds(2)) return std::nullopt;
  said_ = now;
  const double gib = 1024.0 * 1024 * 1024;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  const double rate = static_cast<double>(done) / seconds;
  char text[96];
  const int length = std::snprintf(text, sizeof text, "%.1f of %.1f GiB, %.2f GiB/s", static_cast<double>(done) / gib,
                                   static_cast<double>(total_) / gib, rate / gib);
  std::string said(text, static_cast<size_t>(length));
  if (done > 0)
    said +=
        ", " + std::to_string(static_cast<int64_t>(std::ceil(static_cast<double>(total_ - done) / rate))) + " s left";
  return said;
}

}  // namespace moestro::store
