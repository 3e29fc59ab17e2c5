#pragma once
// The lines of a file, one at a time, with a bound on the length of a line in memory.

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
    bool too_long = false;  ///< the text is not kept
  };

  LineReader(std::unique_ptr<FileBytes> file, size_t line_bytes_max)
      : file_(std::move(file)), line_bytes_max_(line_bytes_max) {}
  /// The next line that is not blank; nullopt at the end. After an error it can be called again and continues at the
  /// same place.
  Result<std::optional<Line>> next();
  /// Continues at `offset`, where line `number` begins.
  void go_to(uint64_t number, uint64_t offset);
  /// The checksum of what was read from the beginning until the first go_to().
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
