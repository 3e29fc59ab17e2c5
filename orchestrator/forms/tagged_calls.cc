#include "orchestrator/forms/tagged_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orchestrator/forms/json_text.h"
#include "orchestrator/forms/marker.h"
#include "orchestrator/forms/python_literal.h"

namespace moestro::orchestrator {

namespace {

/// Templates that print values as Python does teach models to write True and None.
std::string json_of(const grammar::TaggedValue& value, const std::string& said) {
  if (value.text) return value.to_json(said);
  const auto python = python_to_json(said);
  return value.to_json(python && grammar::SchemaJson::parse(said, nullptr, false).is_discarded() ? *python : said);
}

}  // namespace

bool TaggedCallParser::step() {
  switch (place_) {
    case Place::kContent:
      if (!find_begin()) return false;
      called_ = false;
      place_ = tags_.call_begin.empty() ? Place::kName : Place::kBeforeCall;
      return true;
    case Place::kBeforeCall: return read_before_call();
    case Place::kName: return tags_.name_end.empty() ? read_bare_name() : read_name();
    case Place::kArgument: return read_argument();
    case Place::kText: return read_text();
    case Place::kValue: return read_value();
  }
  return false;
}

bool TaggedCallParser::none() {
  no_call();
  place_ = Place::kContent;
  return true;
}

/// The section's next call, or its end where there was one.
bool TaggedCallParser::read_before_call() {
  const size_t white = static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_json_white) - rest_.begin());
  if (white == rest_.size()) return false;
  const std::string_view word = std::string_view(rest_).substr(white);
  const Begins call = begins(word, tags_.call_begin);
  const Begins end = called_ ? begins(word, tags_.section_end) : Begins::kNo;
  if (call == Begins::kYes) {
    if (called_) skip_white();
    keep_raw((called_ ? 0 : white) + tags_.call_begin.size());
    place_ = Place::kName;
    return true;
  }
  if (end == Begins::kYes) {
    rest_.erase(0, white + tags_.section_end.size());
    place_ = Place::kContent;
    return true;
  }
  if (call == Begins::kNotCertain || end == Begins::kNotCertain) return false;
  return none();
}

bool TaggedCallParser::read_name() {
  const size_t at = rest_.find(tags_.name_end);
  if (is_too_long(at, tags_.name_end.size())) return none();
  if (at == std::string::npos) return false;
  const std::string name(trimmed(std::string_view(rest_).substr(0, at)));
  if (!tools_.contains(name)) return none();
  begin(name);
  rest_.erase(0, at + tags_.name_end.size());
  return true;
}

/// A call is certain once its name is followed by one of the tags that may follow it.
bool TaggedCallParser::read_bare_name() {
  const size_t at = rest_.find('<');
  if (is_too_long(at, 1)) return none();
  if (at == std::string::npos) return false;
  const std::string name(trimmed(std::string_view(rest_).substr(0, at)));
  const std::string_view behind = std::string_view(rest_).substr(at);
  const Begins key = begins(behind, tags_.key_begin), end = begins(behind, tags_.section_end);
  if (!tools_.contains(name) || (key == Begins::kNo && end == Begins::kNo)) return none();
  if (key != Begins::kYes && end != Begins::kYes) return false;
  begin(name);
  rest_.erase(0, at);
  return true;
}

void TaggedCallParser::begin(const std::string& name) {
  begin_call(name);
  values_ = &tools_.find(name)->second;
  first_ = called_ = true;
  place_ = Place::kArgument;
}

bool TaggedCallParser::end_call(const std::string& tag) {
  say_arguments(first_ ? "{}" : "}");
  rest_.erase(0, tag.size());
  place_ = tag == tags_.section_end ? Place::kContent : Place::kBeforeCall;
  return true;
}

/// A key up to its value, or the end of the call; a section may end without the call's own end.
bool TaggedCallParser::read_argument() {
  if (!skip_white()) return false;
  const Begins section_end = begins(rest_, tags_.section_end);
  const Begins call_end = tags_.call_end.empty() ? Begins::kNo : begins(rest_, tags_.call_end);
  if (section_end == Begins::kYes) return end_call(tags_.section_end);
  if (call_end == Begins::kYes) return end_call(tags_.call_end);
  const Begins key = begins(rest_, tags_.key_begin);
  if (key == Begins::kNo && (section_end == Begins::kNotCertain || call_end == Begins::kNotCertain)) return false;
  if (key == Begins::kNotCertain) return false;
  const size_t begin = tags_.key_begin.size();
  const size_t key_end = key == Begins::kYes ? rest_.find(tags_.key_end, begin) : 0;
  if (key == Begins::kYes && is_too_long(key_end, tags_.key_end.size())) {
    place_ = Place::kContent;
    return true;
  }
  if (key_end == std::string::npos) return false;
  size_t value_at = key_end + tags_.key_end.size();
  if (key == Begins::kYes && !tags_.value_begin.empty()) {
    value_at = std::min(rest_.find_first_not_of(" \t\r\n", value_at), rest_.size());
    const Begins value = begins(std::string_view(rest_).substr(value_at), tags_.value_begin);
    if (value == Begins::kNotCertain) return false;
    value_at = value == Begins::kYes ? value_at + tags_.value_begin.size() : 0;
  }
  if (key == Begins::kNo || value_at == 0) {
    place_ = Place::kContent;
    return true;
  }
  const std::string name(trimmed(std::string_view(rest_).substr(begin, key_end - begin)));
  rest_.erase(0, value_at);
  const auto known = values_->find(name);
  value_ = known == values_->end() ? grammar::tagged_value(grammar::SchemaJson::object(), {}) : known->second;
  const bool text = value_.text && value_.json.empty();
  say_arguments((first_ ? "{" : ", ") + quoted_json(name) + ": " + (text ? "\"" : ""));
  first_ = in_string_ = escaped_ = false;
  value_begins_ = true;
  scanned_ = 0;
  place_ = text ? Place::kText : Place::kValue;
  return true;
}

bool TaggedCallParser::end_value(size_t at) {
  rest_.erase(0, at + tags_.value_end.size());
  place_ = Place::kArgument;
  return true;
}

/// Without the new lines that only part a value from its tags; `last`: its end has been reached.
std::string TaggedCallParser::text_of(std::string text, bool last) {
  if (!tags_.lines) return text;
  if (last && text.ends_with('\n')) text.pop_back();
  if (value_begins_ && text.starts_with('\n')) text.erase(0, 1);
  return text;
}

/// A string, as it comes. A new line at its end may be none of it.
bool TaggedCallParser::read_text() {
  const size_t at = rest_.find(tags_.value_end);
  const bool ends = at != std::string::npos;
  size_t certain = ends ? at : rest_.size() - begun_marker(rest_, tags_.value_end);
  if (!ends && tags_.lines && certain > 0 && rest_[certain - 1] == '\n') --certain;
  if (certain == 0 && !ends) return false;
  std::string text = escaped_json(text_of(rest_.substr(0, certain), ends));
  value_begins_ = false;
  if (ends) text += '"';
  say_arguments(std::move(text));
  if (ends) return end_value(at);
  rest_.erase(0, certain);
  return false;
}

/// Another value: what it is shows at its end. Where it can be no string, a tag within a JSON string is not its end.
bool TaggedCallParser::read_value() {
  for (; scanned_ < rest_.size(); ++scanned_) {
    const char c = rest_[scanned_];
    if (in_string_ && !value_.text) {
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') in_string_ = false;
      continue;
    }
    if (c == '"') in_string_ = true;
    if (c != '<') continue;
    const Begins end = begins(std::string_view(rest_).substr(scanned_), tags_.value_end);
    if (end == Begins::kNotCertain) return false;
    if (end == Begins::kNo) continue;
    say_arguments(json_of(value_, text_of(rest_.substr(0, scanned_), true)));
    return end_value(scanned_);
  }
  return false;
}

void TaggedCallParser::finish() {
  if (place_ == Place::kBeforeCall && called_ && tags_.section_end.starts_with(trimmed(rest_))) rest_.clear();
  if (place_ == Place::kName || place_ == Place::kBeforeCall) no_call();
  if (place_ == Place::kContent || place_ == Place::kName || place_ == Place::kBeforeCall) finish_content();
  if (place_ == Place::kText) say_arguments(escaped_json(text_of(rest_, false)));
  if (place_ == Place::kValue) say_arguments(rest_);
  rest_.clear();
  place_ = Place::kContent;
}

}  // namespace moestro::orchestrator
