#pragma once
// Progress of an operation with a known number of bytes: the CLI's bar with sizes and rate.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "services/cli/common/output.h"

namespace moestro::cli {

/// "1.50 GiB", "12 B".
std::string human_bytes(uint64_t bytes);

class ByteProgress {
 public:
  explicit ByteProgress(std::string label);
  void update(uint64_t done_bytes, uint64_t total_bytes);
  void finish();

 private:
  std::string label_;
  std::optional<Progress> progress_;  ///< from the first update on; counts percent
  const std::chrono::steady_clock::time_point start_;
  uint64_t first_bytes_ = 0;  ///< done before this run; not counted in the rate
};

}  // namespace moestro::cli
