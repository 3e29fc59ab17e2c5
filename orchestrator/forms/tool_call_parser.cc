#include "orchestrator/forms/tool_call_parser.h"

#include <algorithm>
#include <iterator>

#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

void ToolCallParser::push(std::string_view text) {
  rest_ += text;
  while (step()) {
  }
}

bool ToolCallParser::find_begin() {
  const size_t at = rest_.find(begin_);
  const bool found = at != std::string::npos;
  const size_t certain = found ? at : rest_.size() - begun_marker(rest_, begin_);
  const auto end = rest_.begin() + static_cast<std::ptrdiff_t>(certain);
  const auto last = std::find_if_not(std::reverse_iterator(end), rest_.rend(), is_json_white).base();
  if (last != rest_.begin()) {
    add_content(std::exchange(white_, {}));
    add_content(std::string_view(rest_.begin(), last));
  }
  white_.append(last, end);  // looks at the new bytes only
  rest_.erase(0, certain);
  if (!found) return false;
  raw_ = white_ + begin_;
  rest_.erase(0, begin_.size());
  white_.clear();
  return true;
}

void ToolCallParser::no_call() { add_content(std::exchange(raw_, {})); }

void ToolCallParser::add_content(std::string_view text) {
  if (text.empty()) return;
  if (said_.empty() || !std::holds_alternative<std::string>(said_.back())) said_.emplace_back(std::string());
  std::get<std::string>(said_.back()) += text;
}

void ToolCallParser::finish_content() {
  if (calls_ == 0 || !rest_.empty()) add_content(white_ + rest_);
  white_.clear();
  rest_.clear();
}

void ToolCallParser::begin_call(std::string name, std::string id) {
  raw_.clear();
  said_.emplace_back(ToolCallDelta{calls_++, true, std::move(name), "", std::move(id)});
}

void ToolCallParser::say_arguments(std::string text) {
  if (!text.empty()) said_.emplace_back(ToolCallDelta{calls_ - 1, false, "", std::move(text), ""});
}

bool ToolCallParser::skip_white() {
  rest_.erase(rest_.begin(), std::find_if_not(rest_.begin(), rest_.end(), is_json_white));
  return !rest_.empty();
}

void ToolCallParser::keep_raw(size_t bytes) {
  raw_ += std::string_view(rest_).substr(0, bytes);
  rest_.erase(0, bytes);
}

}  // namespace moestro::orchestrator
