#include "services/cli/common/sse.h"

namespace moestro::cli {

Status SseParser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (line_.size() + data_.size() + std::min(end, bytes.size()) > kEventBytesMax)
      return corrupt("the server sent an event of more than 16 MiB");
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return Status::ok();
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    const std::string line = std::move(line_);
    line_.clear();
    MOESTRO_RETURN_IF_ERROR(take_line(line));
  }
  return Status::ok();
}

Status SseParser::take_line(std::string_view line) {
  if (line.empty()) {
    if (!has_data_) return Status::ok();
    const std::string data = std::move(data_);
    data_.clear();
    has_data_ = false;
    return on_data_(data);
  }
  // Comments (":") and the fields event, id and retry mean nothing here.
  if (!line.starts_with("data:")) return Status::ok();
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return Status::ok();
}

}  // namespace moestro::cli
