#include "orchestrator/api/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "orchestrator/api/marker.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {
bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::string string_of(std::string_view value) {
  const json parsed = json::parse(value, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string();
}
}  // namespace

void ToolCallParser::push(std::string_view text) {
  rest_ += text;
  while (step()) {
  }
}

bool ToolCallParser::step() {
  switch (place_) {
    case Place::kContent: return content_step();
    case Place::kBeforeCall: return before_call_step();
    case Place::kCall: return call_step();
    case Place::kAfterCall: return after_call_step();
  }
  return false;
}

bool ToolCallParser::content_step() {
  const size_t at = rest_.find(style_.begin);
  const bool found = at != std::string::npos;
  const size_t certain = found ? at : rest_.size() - begun_marker(rest_, style_.begin);
  white_ += rest_.substr(0, certain);
  const auto last = std::find_if_not(white_.rbegin(), white_.rend(), is_white).base();
  content_.append(white_.begin(), last);
  white_.erase(white_.begin(), last);
  rest_.erase(0, certain);
  if (!found) return false;
  raw_ = white_ + style_.begin;
  rest_.erase(0, style_.begin.size());
  white_.clear();
  place_ = Place::kBeforeCall;
  first_in_list_ = true;
  return true;
}

/// Up to the call's '{'.
bool ToolCallParser::before_call_step() {
  while (!rest_.empty()) {
    const char c = rest_.front();
    const bool opens_list = style_.list && first_in_list_ && c == '[';
    if (c == '{') {
      place_ = Place::kCall;
      depth_ = 0;
      in_string_ = escaped_ = in_value_ = named_ = has_arguments_ = false;
      key_.clear(), value_.clear(), early_.clear();
      said_ = 0;
      return true;
    }
    if (!is_white(c) && !opens_list) return no_call(), true;
    raw_ += c;
    rest_.erase(0, 1);
    if (opens_list) first_in_list_ = false;
  }
  return false;
}

/// What began like a call is content; what follows is looked at anew.
void ToolCallParser::no_call() {
  content_ += raw_;
  raw_.clear();
  place_ = Place::kContent;
}

/// The object, character by character: its first level's keys and values.
bool ToolCallParser::call_step() {
  size_t i = 0;
  for (; i < rest_.size() && place_ == Place::kCall; ++i) {
    const char c = rest_[i];
    raw_ += c;
    if (in_string_) {
      value_ += c;
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') in_string_ = false;
      continue;
    }
    if (depth_ == 0) {
      depth_ = 1;
      continue;
    }
    const bool closes = c == '}' || c == ']';
    if (depth_ == 1 && (c == ',' || closes)) {
      if (in_value_) value_done(value_);
      in_value_ = false;
      value_.clear();
      if (!closes) continue;
      ++i;
      rest_.erase(0, i);
      return end_of_call();
    }
    if (depth_ == 1 && c == ':' && !in_value_) {
      key_ = string_of(value_);
      value_.clear();
      in_value_ = true;
      continue;
    }
    if (is_white(c) && value_.empty()) continue;
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (closes) --depth_;
    value_ += c;
    if (in_value_ && depth_ == 1 && closes) say_arguments(value_);
  }
  rest_.clear();
  if (in_value_ && depth_ > 1) say_arguments(value_);
  return false;
}

/// Gives out what is there of the arguments, an object's text so far.
void ToolCallParser::say_arguments(std::string_view text) {
  if (key_ != "arguments" && key_ != "parameters") return;
  if (!named_) {
    early_ = text;
    return;
  }
  if (text.size() <= said_) return;
  deltas_.push_back({calls_ - 1, false, "", std::string(text.substr(said_))});
  said_ = text.size();
  has_arguments_ = true;
}

void ToolCallParser::value_done(std::string_view value) {
  while (!value.empty() && is_white(value.back())) value.remove_suffix(1);
  if (key_ == "name" && !named_) {
    std::string name = string_of(value);
    if (name.empty()) return;
    named_ = true;
    deltas_.push_back({calls_++, true, std::move(name), ""});
    if (const std::string early = std::exchange(early_, {}); !early.empty()) {
      key_ = "arguments";
      say_arguments(early);
    }
  } else if (key_ == "arguments" || key_ == "parameters") {
    // Some models write them as a string that holds JSON.
    say_arguments(value.starts_with('"') ? string_of(value) : std::string(value));
  }
}

bool ToolCallParser::end_of_call() {
  if (!named_) {
    no_call();
    return true;
  }
  if (!has_arguments_) deltas_.push_back({calls_ - 1, false, "", "{}"});
  raw_.clear();
  place_ = Place::kAfterCall;
  return true;
}

bool ToolCallParser::after_call_step() {
  const size_t begin = static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_white) - rest_.begin());
  rest_.erase(0, begin);
  if (rest_.empty()) return false;
  if (style_.list) {
    const char c = rest_.front();
    if (c == ',' || c == ']') rest_.erase(0, 1);
    place_ = c == ',' ? Place::kBeforeCall : Place::kContent;
    return true;
  }
  if (rest_.size() < style_.end.size() && style_.end.starts_with(rest_)) return false;
  if (rest_.starts_with(style_.end)) rest_.erase(0, style_.end.size());
  place_ = Place::kContent;
  return true;
}

void ToolCallParser::finish() {
  if (place_ == Place::kAfterCall && !style_.end.starts_with(rest_)) content_ += rest_;
  if (place_ == Place::kContent) content_ += calls_ == 0 || !rest_.empty() ? white_ + rest_ : std::string();
  if (place_ == Place::kBeforeCall || (place_ == Place::kCall && !named_)) content_ += raw_ + rest_;
  rest_.clear();
  place_ = Place::kContent;
}

std::string ToolCallParser::take_content() { return std::exchange(content_, {}); }
std::vector<ToolCallDelta> ToolCallParser::take_calls() { return std::exchange(deltas_, {}); }

}  // namespace moestro::orchestrator
