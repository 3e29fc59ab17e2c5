#include "orchestrator/api/tagged_calls.h"

#include <algorithm>

#include "orchestrator/api/marker.h"

namespace moestro::orchestrator {

namespace {

constexpr size_t kNameBytesMax = 256;  // with white space around it

std::string_view trimmed(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_json_white);
  const auto end = std::find_if_not(text.rbegin(), std::reverse_iterator(begin), is_json_white).base();
  return {begin, end};
}

std::string quoted(const std::string& text) {
  return RequestJson(text).dump(-1, ' ', false, RequestJson::error_handler_t::replace);
}

/// The inside of a JSON string; characters may be cut at any byte.
std::string escaped_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    const std::string one = plain ? std::string(1, c) : quoted(std::string(1, c));
    out += plain ? one : one.substr(1, one.size() - 2);
  }
  return out;
}

/// Whether `text` begins with `word`; not certain if it may yet.
enum class Begins { kYes, kNo, kNotCertain };
Begins begins(std::string_view text, std::string_view word) {
  if (text.starts_with(word)) return Begins::kYes;
  return word.starts_with(text) ? Begins::kNotCertain : Begins::kNo;
}

}  // namespace

bool TaggedCallParser::step() {
  switch (place_) {
    case Place::kContent:
      if (!find_begin()) return false;
      place_ = Place::kName;
      return true;
    case Place::kName: return read_name();
    case Place::kArgument: return read_argument();
    case Place::kText: return read_text();
    case Place::kValue: return read_value();
  }
  return false;
}

/// A call is certain once its name is followed by one of the tags that may follow it.
bool TaggedCallParser::read_name() {
  const size_t at = rest_.find('<');
  const std::string name(trimmed(std::string_view(rest_).substr(0, at)));
  const auto tool = tools_.find(name);
  bool none = at == std::string::npos ? rest_.size() > kNameBytesMax : tool == tools_.end();
  if (!none && at == std::string::npos) return false;
  if (!none) {
    const std::string_view behind = std::string_view(rest_).substr(at);
    const Begins key = begins(behind, tags_.key_begin), end = begins(behind, style_.end);
    if (key != Begins::kYes && end != Begins::kYes && (key == Begins::kNotCertain || end == Begins::kNotCertain))
      return false;
    none = key == Begins::kNo && end == Begins::kNo;
  }
  if (none) {
    no_call();
    place_ = Place::kContent;
    return true;
  }
  begin_call(name);
  values_ = &tool->second;
  first_ = true;
  rest_.erase(0, at);
  place_ = Place::kArgument;
  return true;
}

bool TaggedCallParser::skip_white() {
  rest_.erase(rest_.begin(), std::find_if_not(rest_.begin(), rest_.end(), is_json_white));
  return !rest_.empty();
}

/// <arg_key>KEY</arg_key><arg_value>, or the end of the call.
bool TaggedCallParser::read_argument() {
  if (!skip_white()) return false;
  const Begins key = begins(rest_, tags_.key_begin), end = begins(rest_, style_.end);
  if (end == Begins::kYes) {
    say_arguments(first_ ? "{}" : "}");
    rest_.erase(0, style_.end.size());
    place_ = Place::kContent;
    return true;
  }
  if (key == Begins::kNotCertain || end == Begins::kNotCertain) return false;
  const size_t begin = tags_.key_begin.size();
  const size_t key_end = key == Begins::kYes ? rest_.find(tags_.key_end, begin) : 0;
  if (key_end == std::string::npos) return false;
  const std::string_view behind = trimmed(std::string_view(rest_).substr(std::min(
      rest_.size(), key_end + tags_.key_end.size())));
  const Begins value = key == Begins::kYes ? begins(behind, tags_.value_begin) : Begins::kNo;
  if (value == Begins::kNotCertain) return false;
  if (value == Begins::kNo) {
    place_ = Place::kContent;
    return true;
  }
  const std::string name(trimmed(std::string_view(rest_).substr(begin, key_end - begin)));
  rest_.erase(0, rest_.find(tags_.value_begin, key_end) + tags_.value_begin.size());
  const auto known = values_->find(name);
  value_ = known == values_->end() ? grammar::tagged_value(RequestJson::object(), {}) : known->second;
  const bool text = value_.text && value_.json.empty();
  say_arguments((first_ ? "{" : ", ") + quoted(name) + ": " + (text ? "\"" : ""));
  first_ = in_string_ = escaped_ = false;
  scanned_ = 0;
  place_ = text ? Place::kText : Place::kValue;
  return true;
}

bool TaggedCallParser::end_value(size_t at) {
  rest_.erase(0, at + tags_.value_end.size());
  place_ = Place::kArgument;
  return true;
}

/// A string, as it comes.
bool TaggedCallParser::read_text() {
  const size_t at = rest_.find(tags_.value_end);
  const size_t certain = at != std::string::npos ? at : rest_.size() - begun_marker(rest_, tags_.value_end);
  std::string text = escaped_text(std::string_view(rest_).substr(0, certain));
  if (at != std::string::npos) text += '"';
  say_arguments(std::move(text));
  if (at != std::string::npos) return end_value(at);
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
    say_arguments(value_.to_json(rest_.substr(0, scanned_)));
    return end_value(scanned_);
  }
  return false;
}

void TaggedCallParser::finish() {
  if (place_ == Place::kName) no_call();
  if (place_ == Place::kContent || place_ == Place::kName) finish_content();
  if (place_ == Place::kText) say_arguments(escaped_text(rest_));
  if (place_ == Place::kValue) say_arguments(rest_);
  rest_.clear();
  place_ = Place::kContent;
}

}  // namespace moestro::orchestrator
