#pragma once
// The lines of a file, one at a time and none longer than a bound in memory.

#include <cstdint>
#include <optional>
#include <string>

#include "common/shm/mapped_file.h"
#include "common/status.h"

namespace moestro::orchestrator {

class LineReader {
 public:
  struct Line {
    uint64_t number = 0;  ///< from 1, as an editor counts
    std::string text;
    bool too_long = false;  ///< its text is left out
  };

  LineReader(shm::UniqueFd fd, size_t line_bytes_max) : fd_(std::move(fd)), line_bytes_max_(line_bytes_max) {}
  /// The next line that is not blank; nothing at the end.
  Result<std::optional<Line>> next();

 private:
  Result<bool> fill();
  shm::UniqueFd fd_;
  size_t line_bytes_max_;
  std::string buffer_;
  size_t at_ = 0;  ///< of buffer_
  uint64_t offset_ = 0, number_ = 0;
};

}  // namespace moestro::orchestrator
