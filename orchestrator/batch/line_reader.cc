#include "orchestrator/batch/line_reader.h"

#include <unistd.h>

#include <cerrno>

namespace moestro::orchestrator {

/// False at the end of the file.
Result<bool> LineReader::fill() {
  buffer_.resize(64 << 10);
  at_ = 0;
  ssize_t n = 0;
  do n = ::pread(fd_.get(), buffer_.data(), buffer_.size(), static_cast<off_t>(offset_));
  while (n < 0 && errno == EINTR);
  buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (n < 0) return io_error("reading a batch's input", errno);
  offset_ += static_cast<uint64_t>(n);
  return n > 0;
}

Result<std::optional<LineReader::Line>> LineReader::next() {
  for (;;) {
    Line line;
    bool any = false, ended = false;
    while (!ended) {
      if (at_ == buffer_.size()) {
        MOESTRO_ASSIGN_OR_RETURN(const bool more, fill());
        if (!more) break;
      }
      any = true;
      const size_t end = buffer_.find('\n', at_);
      ended = end != std::string::npos;
      const size_t stop = ended ? end : buffer_.size();
      line.too_long = line.too_long || line.text.size() + (stop - at_) > line_bytes_max_;
      if (line.too_long)
        line.text.clear();
      else
        line.text.append(buffer_, at_, stop - at_);
      at_ = stop + (ended ? 1 : 0);
    }
    if (!any) return std::optional<Line>();
    line.number = ++number_;
    if (number_ == 1 && line.text.starts_with("\xef\xbb\xbf")) line.text.erase(0, 3);
    if (line.too_long || line.text.find_first_not_of(" \t\r") != std::string::npos) return std::optional<Line>(std::move(line));
  }
}

}  // namespace moestro::orchestrator
