#include "orchestrator/batch/line_reader.h"

namespace moestro::orchestrator {

/// False at the end of the file.
Result<bool> LineReader::fill() {
  MOESTRO_ASSIGN_OR_RETURN(std::string piece, file_->read(offset_, 64 << 10));
  buffer_ = std::move(piece);
  at_ = 0;
  if (sum_.bytes() == offset_) sum_.add(buffer_);
  offset_ += buffer_.size();
  return !buffer_.empty();
}

void LineReader::go_to(uint64_t number, uint64_t offset) {
  begun_.reset();
  number_ = number - 1;
  const uint64_t first = offset_ - buffer_.size();
  if (offset >= first && offset <= offset_) {
    at_ = static_cast<size_t>(offset - first);
    return;
  }
  buffer_.clear();
  at_ = 0;
  offset_ = offset;
}

Result<std::optional<LineReader::Line>> LineReader::next() {
  for (;;) {
    for (bool ended = false; !ended;) {
      if (at_ == buffer_.size()) {
        MOESTRO_ASSIGN_OR_RETURN(const bool more, fill());
        if (!more) break;
      }
      if (!begun_) begun_ = Line{++number_, position(), {}, false};
      const size_t end = buffer_.find('\n', at_);
      ended = end != std::string::npos;
      const size_t stop = ended ? end : buffer_.size();
      begun_->too_long = begun_->too_long || begun_->text.size() + (stop - at_) > line_bytes_max_;
      if (begun_->too_long)
        begun_->text.clear();
      else
        begun_->text.append(buffer_, at_, stop - at_);
      at_ = stop + (ended ? 1 : 0);
    }
    if (!begun_) return std::optional<Line>();
    Line line = std::move(*begun_);
    begun_.reset();
    if (line.number == 1 && line.text.starts_with("\xef\xbb\xbf")) line.text.erase(0, 3);
    if (line.too_long || line.text.find_first_not_of(" \t\r") != std::string::npos)
      return std::optional<Line>(std::move(line));
  }
}

}  // namespace moestro::orchestrator
