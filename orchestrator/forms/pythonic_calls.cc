#include "orchestrator/forms/pythonic_calls.h"

#include <algorithm>

#include "orchestrator/forms/json_text.h"
#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

namespace {

bool is_python_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || static_cast<unsigned char>(c) >= 0x80;
  });
}

}  // namespace

bool PythonicCallParser::step() {
  switch (place_) {
    case Place::kStart: return read_start();
    case Place::kContent:
      if (!find_begin()) return false;
      place_ = Place::kStart;
      return true;
    case Place::kName: return read_name();
    case Place::kKey: return read_key();
    case Place::kValue: return read_value();
    case Place::kAfterCall: return read_after_call();
  }
  return false;
}

bool PythonicCallParser::none() {
  no_call();
  place_ = Place::kContent;
  return true;
}

/// The list's '['.
bool PythonicCallParser::read_start() {
  const size_t at = rest_.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) return false;
  if (rest_[at] != '[') return none();
  keep_raw(at + 1);
  place_ = Place::kName;
  return true;
}

bool PythonicCallParser::read_name() {
  const size_t at = rest_.find('(');
  const std::string name(trimmed(std::string_view(rest_).substr(0, at)));
  if (is_too_long(at, 1) || (!name.empty() && !is_python_name(name))) return none();
  if (at == std::string::npos) return false;
  if (!tools_.contains(name)) return none();
  begin_call(name);
  rest_.erase(0, at + 1);
  name_ = name;
  first_ = true;
  place_ = Place::kKey;
  return true;
}

bool PythonicCallParser::end_call() {
  say_arguments(first_ ? "{}" : "}");
  place_ = Place::kAfterCall;
  return true;
}

/// KEY=, or the call's end.
bool PythonicCallParser::read_key() {
  if (!skip_white()) return false;
  if (rest_.front() == ')') {
    rest_.erase(0, 1);
    return end_call();
  }
  const size_t at = rest_.find('=');
  const std::string_view key = trimmed(std::string_view(rest_).substr(0, at));
  if (is_too_long(at, 1) || !is_python_name(key)) {
    place_ = Place::kContent;
    return true;
  }
  if (at == std::string::npos) return false;
  say_arguments((first_ ? "{" : ", ") + quoted_json(key) + ": ");
  rest_.erase(0, at + 1);
  first_ = false;
  end_ = {};
  scanned_ = 0;
  place_ = Place::kValue;
  return true;
}

bool PythonicCallParser::read_value() {
  for (; scanned_ < rest_.size(); ++scanned_) {
    if (!end_.take(rest_[scanned_])) continue;
    const std::string_view said = trimmed(std::string_view(rest_).substr(0, scanned_));
    say_arguments(python_to_json(said).value_or(quoted_json(said)));
    const bool last = rest_[scanned_] == ')';
    rest_.erase(0, scanned_ + 1);
    place_ = Place::kKey;
    return last ? end_call() : true;
  }
  return false;
}

bool PythonicCallParser::read_after_call() {
  if (!skip_white()) return false;
  const char c = rest_.front();
  if (c == ',') keep_raw(1);
  if (c == ']') rest_.erase(0, 1);
  place_ = c == ',' ? Place::kName : Place::kContent;
  return true;
}

void PythonicCallParser::finish() {
  if (place_ == Place::kName || place_ == Place::kStart) no_call();
  if (place_ == Place::kContent || place_ == Place::kName || place_ == Place::kStart) finish_content();
  if (place_ == Place::kKey) add_content(rest_);
  if (place_ == Place::kValue) say_arguments(python_to_json(trimmed(rest_)).value_or(begun_python_string(rest_)));
  rest_.clear();
  place_ = Place::kContent;
}

}  // namespace moestro::orchestrator
