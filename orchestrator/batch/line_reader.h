#pragma once
// The lines of a file, one at a time and none longer than a bound in memory.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "orchestrator/batch/file_store.h"

namespace moestro::orchestrator {

class LineReader {
 public:
  struct Line {
    uint64_t number = 0;  ///< from 1, as an editor counts
    uint64_t offset = 0;  ///< of its first byte
    std::string text;
    bool too_long = false;  ///< its text is left out
  };

  LineReader(std::unique_ptr<FileBytes> file, size_t line_bytes_max)
      : file_(std::move(file)), line_bytes_max_(line_bytes_max) {}
  /// The next line that is not blank; nothing at the end. After an error it can be asked again, and goes on where it
  /// was.
  Result<std::optional<Line>> next();
  /// What follows is the line of this number, which begins there.
  void go_to(uint64_t number, uint64_t offset);
  /// Of what was read from the beginning on, up to where go_to() left that order.
  const FileSum& sum() const { return sum_; }

 private:
  Result<bool> fill();
  uint64_t position() const { return offset_ - (buffer_.size() - at_); }
  std::unique_ptr<FileBytes> file_;
  size_t line_bytes_max_;
  FileSum sum_;
  std::string buffer_;
  size_t at_ = 0;  ///< of buffer_
  uint64_t offset_ = 0, number_ = 0;
  std::optional<Line> begun_;  ///< a line whose end is not read yet
};

}  // namespace moestro::orchestrator
