#include "orchestrator/forms/object_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {
std::string string_of(std::string_view value) {
  const json parsed = json::parse(value, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string();
}
/// A bare object whose first key is another one is text, and need not be held back.
bool is_key_of_calls(const std::string& key) {
  return key == "name" || key == "arguments" || key == "parameters" || key == "type" || key == "id";
}
}  // namespace

bool ObjectCallParser::step() {
  switch (place_) {
    case Place::kStart: return start_step();
    case Place::kContent: return content_step();
    case Place::kBeforeCall: return before_call_step();
    case Place::kCall: return call_step();
    case Place::kAfterCall: return after_call_step();
    case Place::kEnd: return end_step();
  }
  return false;
}

/// The answer's first word: an object may be a call.
bool ObjectCallParser::start_step() {
  const auto first = std::find_if_not(rest_.begin(), rest_.end(), is_json_white);
  if (first == rest_.end()) return false;
  place_ = *first == '{' ? Place::kBeforeCall : Place::kContent;
  return true;
}

bool ObjectCallParser::content_step() {
  if (!find_begin()) return false;
  place_ = Place::kBeforeCall;
  first_in_list_ = true;
  return true;
}

/// Up to the call's '{'.
bool ObjectCallParser::before_call_step() {
  while (!rest_.empty()) {
    const char c = rest_.front();
    const bool opens_list = marks_.list && first_in_list_ && c == '[';
    if (c == '{') {
      place_ = Place::kCall;
      depth_ = 0;
      in_string_ = escaped_ = in_value_ = named_ = has_arguments_ = false;
      key_.clear(), value_.clear(), early_.clear();
      said_ = 0;
      return true;
    }
    if (!is_json_white(c) && !opens_list) return reject(), true;
    raw_ += c;
    rest_.erase(0, 1);
    if (opens_list) first_in_list_ = false;
  }
  return false;
}

void ObjectCallParser::reject() {
  no_call();
  place_ = Place::kContent;
}

/// The object, character by character: its first level's keys and values.
bool ObjectCallParser::call_step() {
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
      if (marks_.bare && !named_ && !is_key_of_calls(key_)) reject();
      continue;
    }
    if (is_json_white(c) && value_.empty()) continue;
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (closes) --depth_;
    value_ += c;
    if (in_value_ && depth_ == 1 && closes) say_value(value_);
  }
  rest_.erase(0, i);
  if (place_ != Place::kCall) return true;
  if (in_value_ && depth_ > 1) say_value(value_);
  return false;
}

/// Gives out what is there of the arguments, an object's text so far.
void ObjectCallParser::say_value(std::string_view text) {
  if (key_ != "arguments" && key_ != "parameters") return;
  if (!named_) {
    early_ = text;
    return;
  }
  if (text.size() <= said_) return;
  say_arguments(std::string(text.substr(said_)));
  said_ = text.size();
  has_arguments_ = true;
}

void ObjectCallParser::value_done(std::string_view value) {
  while (!value.empty() && is_json_white(value.back())) value.remove_suffix(1);
  if (key_ == "name" && !named_) {
    std::string name = string_of(value);
    if (name.empty()) return;
    if (marks_.bare && !tools_.contains(name)) return reject();
    named_ = true;
    begin_call(std::move(name));
    if (const std::string early = std::exchange(early_, {}); !early.empty()) {
      key_ = "arguments";
      say_value(early);
    }
  } else if (key_ == "arguments" || key_ == "parameters") {
    // Some models write them as a string that holds JSON.
    say_value(value.starts_with('"') ? string_of(value) : std::string(value));
  }
}

bool ObjectCallParser::end_of_call() {
  if (!named_) {
    reject();
    return true;
  }
  if (!has_arguments_) say_arguments("{}");
  raw_.clear();
  place_ = Place::kAfterCall;
  return true;
}

bool ObjectCallParser::after_call_step() {
  if (!skip_white()) return false;
  const char c = rest_.front();
  if (marks_.bare) {
    if (c == ';') keep_raw(1);
    place_ = c == ';' || c == '{' ? Place::kBeforeCall : Place::kContent;
  } else if (marks_.list) {
    if (c == ',' || c == ']') rest_.erase(0, 1);
    place_ = c == ',' ? Place::kBeforeCall : c == ']' && !marks_.end.empty() ? Place::kEnd : Place::kContent;
  } else {
    place_ = Place::kEnd;
  }
  return true;
}

/// What ends a call or a list of calls may be left out.
bool ObjectCallParser::end_step() {
  if (!skip_white()) return false;
  const Begins end = begins(rest_, marks_.end);
  if (end == Begins::kNotCertain) return false;
  if (end == Begins::kYes) rest_.erase(0, marks_.end.size());
  place_ = Place::kContent;
  return true;
}

void ObjectCallParser::finish() {
  if (place_ == Place::kCall && !named_ && in_value_ && !in_string_) value_done(value_);  // a name that is whole
  if (place_ == Place::kEnd && !marks_.end.starts_with(rest_)) add_content(rest_);
  if (place_ == Place::kContent || place_ == Place::kStart) finish_content();
  if (place_ == Place::kBeforeCall || (place_ == Place::kCall && !named_)) add_content(raw_ + rest_);
  rest_.clear();
  place_ = Place::kContent;
}

}  // namespace moestro::orchestrator
