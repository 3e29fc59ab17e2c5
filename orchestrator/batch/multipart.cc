#include "orchestrator/batch/multipart.h"

#include <strings.h>

#include <algorithm>

namespace moestro::orchestrator {
namespace {

constexpr size_t kHeadersMax = 8192;

/// The value of `name` in "x; name=value; other=\"value\"": nothing if it is not there.
Result<std::string> parameter(std::string_view text, std::string_view name) {
  for (size_t at = text.find(';'); at != std::string_view::npos;) {
    at = text.find_first_not_of("; \t", at);
    if (at == std::string_view::npos) break;
    const size_t equals = text.find('=', at);
    if (equals == std::string_view::npos) break;
    const std::string_view key = text.substr(at, equals - at);
    std::string value;
    size_t end = equals + 1;
    if (end < text.size() && text[end] == '"') {
      for (++end; end < text.size() && text[end] != '"'; ++end) {
        if (text[end] == '\\' && end + 1 < text.size() && (text[end + 1] == '"' || text[end + 1] == '\\')) ++end;
        value += text[end];
      }
      end = text.find(';', end);
    } else {
      end = text.find(';', end);
      value = text.substr(equals + 1, end == std::string_view::npos ? end : end - equals - 1);
      value.erase(value.find_last_not_of(" \t") + 1);
    }
    if (key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0) return value;
    at = end;
  }
  return not_found("no " + std::string(name));
}

bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && strncasecmp(text.data(), word.data(), word.size()) == 0;
}

}  // namespace

Result<MultipartReader> MultipartReader::open(const std::string& content_type, Callbacks callbacks) {
  if (!begins_with(content_type, "multipart/form-data"))
    return invalid_argument("the body must be multipart/form-data");
  const auto boundary = parameter(content_type, "boundary");
  if (!boundary.is_ok() || boundary->empty() || boundary->size() > 70)
    return invalid_argument("the Content-Type must name a boundary of 1 to 70 characters");
  return MultipartReader("\r\n--" + *boundary, std::move(callbacks));
}

Status MultipartReader::feed(std::string_view piece) {
  held_ += piece;
  for (;;) {
    MOESTRO_ASSIGN_OR_RETURN(const bool more, advance());
    if (!more) return Status::ok();
  }
}

/// True if there is more to do with what is held.
Result<bool> MultipartReader::advance() {
  switch (state_) {
    case State::kPreamble: return skip_to_boundary(false);
    case State::kBoundary: return read_boundary_end();
    case State::kHeaders: return read_headers();
    case State::kContent: return skip_to_boundary(true);
    case State::kDone: held_.clear(); break;
  }
  return false;
}

Result<bool> MultipartReader::skip_to_boundary(bool is_content) {
  const size_t found = held_.find(delimiter_);
  // Without one, the end of what is held may be its beginning.
  const size_t certain =
      found != std::string::npos ? found : held_.size() - std::min(held_.size(), delimiter_.size() - 1);
  if (is_content && certain > 0)
    MOESTRO_RETURN_IF_ERROR(callbacks_.content(std::string_view(held_).substr(0, certain)));
  held_.erase(0, found != std::string::npos ? found + delimiter_.size() : certain);
  if (found == std::string::npos) return false;
  state_ = State::kBoundary;
  return true;
}

Result<bool> MultipartReader::read_boundary_end() {
  if (held_.starts_with("--")) {
    state_ = State::kDone;
    return true;
  }
  const size_t text = held_.find_first_not_of(" \t");
  if (std::min(text, held_.size()) > kHeadersMax) return invalid_argument("the form's boundary does not end");
  if (text == std::string::npos || text + 1 >= held_.size()) return false;
  if (held_.compare(text, 2, "\r\n") != 0)
    return invalid_argument("the form's boundary must be followed by a line break");
  held_.erase(0, text);  // the line break stays, before each header
  state_ = State::kHeaders;
  return true;
}

Result<bool> MultipartReader::read_headers() {
  const size_t end = held_.find("\r\n\r\n");
  if (end == std::string::npos || end > kHeadersMax) {
    // What is missing of the end would be beyond the limit: so it does not depend on the pieces what is refused.
    if (held_.size() > kHeadersMax + 3) return invalid_argument("a part of the form has headers of more than 8 KiB");
    return false;
  }
  Part part;
  for (size_t at = 0; at < end;) {
    at += 2;
    const size_t next = std::min(held_.find("\r\n", at), end);
    const std::string_view line = std::string_view(held_).substr(at, next - at);
    if (begins_with(line, "content-disposition:")) {
      if (auto name = parameter(line, "name"); name.is_ok()) part.name = std::move(*name);
      if (auto name = parameter(line, "filename"); name.is_ok()) part.filename = std::move(*name);
    }
    at = next;
  }
  if (part.name.empty()) return invalid_argument("a part of the form has no name");
  held_.erase(0, end + 4);
  MOESTRO_RETURN_IF_ERROR(callbacks_.begin(part));
  state_ = State::kContent;
  return true;
}

}  // namespace moestro::orchestrator
