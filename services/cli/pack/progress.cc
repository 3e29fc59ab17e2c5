#include "services/cli/pack/progress.h"

#include <cstdio>
#include <iterator>

namespace moestro::cli {

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

ByteProgress::ByteProgress(std::string label)
    : label_(std::move(label) + ", percent:"), start_(std::chrono::steady_clock::now()) {}

void ByteProgress::update(uint64_t done, uint64_t total) {
  if (!progress_) {
    progress_.emplace(label_, 100);
    first_bytes_ = done;
  }
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto rate = seconds > 0 ? static_cast<uint64_t>(static_cast<double>(done - first_bytes_) / seconds) : 0;
  const uint64_t percent =
      total == 0 ? 100 : static_cast<uint64_t>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  progress_->update(percent, human_bytes(done) + " of " + human_bytes(total) + ", " + human_bytes(rate) + "/s",
                    std::chrono::duration<double>(now.time_since_epoch()).count());
}

void ByteProgress::finish() {
  if (progress_) progress_->finish();
}

}  // namespace moestro::cli
