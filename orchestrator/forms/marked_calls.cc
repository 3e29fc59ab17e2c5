#include "orchestrator/forms/marked_calls.h"

#include <algorithm>
#include <charconv>

#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

namespace {

constexpr size_t kHeadBytesMax = 512;  // of a name with its id and white space

bool is_call_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != '<' && c != '>' && c != '{' && c != '"';
  });
}

}  // namespace

bool MarkedCallParser::step() {
  switch (place_) {
    case Place::kContent:
      if (!find_begin()) return false;
      place_ = marks_.section_begin.empty() ? Place::kHead : Place::kBeforeCall;
      return true;
    case Place::kBeforeCall: return read_before_call();
    case Place::kHead: return read_head();
    case Place::kArguments: return read_arguments();
    case Place::kAfterCall: return read_after_call();
  }
  return false;
}

bool MarkedCallParser::none() {
  no_call();
  place_ = Place::kContent;
  return true;
}

bool MarkedCallParser::read_before_call() {
  const size_t white = rest_.find_first_not_of(" \t\r\n");
  if (white == std::string::npos) return false;
  const Begins call = begins(std::string_view(rest_).substr(white), marks_.call_begin);
  if (call == Begins::kNotCertain) return false;
  if (call == Begins::kNo) return none();
  keep_raw(white + marks_.call_begin.size());
  place_ = Place::kHead;
  return true;
}

/// A number that the answer has given already would make two calls one.
std::string MarkedCallParser::new_id(const std::string& name, std::string_view number) {
  uint64_t n = 0;
  std::from_chars(number.data(), number.data() + number.size(), n);
  const auto id = [&] { return marks_.name_begin + name + ":" + std::to_string(n); };
  while (!ids_.insert(id()).second) ++n;
  return id();
}

/// No name: it is none.
MarkedCallParser::Head MarkedCallParser::head_of(std::string_view text) {
  text = trimmed(text);
  if (!marks_.name_begin.empty() && text.starts_with(marks_.name_begin))
    text = trimmed(text.substr(marks_.name_begin.size()));
  Head head;
  const size_t id_at = marks_.numbered            ? text.rfind(':')
                       : marks_.id_begin.empty() ? std::string_view::npos
                                                 : text.find(marks_.id_begin);
  const std::string_view name = trimmed(text.substr(0, id_at));
  if (!is_call_name(name)) return head;
  head.name = name;
  if (marks_.numbered)
    head.id = new_id(head.name, id_at == std::string_view::npos ? "0" : text.substr(id_at + 1));
  else if (id_at != std::string_view::npos)
    head.id = trimmed(text.substr(id_at + marks_.id_begin.size()));
  return head;
}

/// Up to the arguments' '{', or to the end of a call that has none.
bool MarkedCallParser::read_head() {
  const std::string arguments(trimmed(marks_.arguments_begin));
  const size_t at = rest_.find(arguments);
  if (is_too_long(at, arguments.size(), kHeadBytesMax)) return none();
  if (at == std::string::npos) return false;
  const size_t begin = rest_.find_first_not_of(" \t\r\n", at + arguments.size());
  if (begin == std::string::npos) return false;
  const std::string_view behind = std::string_view(rest_).substr(begin);
  const Begins ends = marks_.call_end.empty() ? Begins::kNo : begins(behind, marks_.call_end);
  if (behind.front() != '{' && ends == Begins::kNotCertain) return false;
  if (behind.front() != '{' && ends == Begins::kNo) return none();
  const Head head = head_of(std::string_view(rest_).substr(0, at));
  if (head.name.empty()) return none();
  begin_call(head.name, head.id);
  rest_.erase(0, begin);
  end_ = {};
  place_ = Place::kArguments;
  if (ends != Begins::kYes) return true;
  say_arguments("{}");
  place_ = Place::kAfterCall;
  return true;
}

bool MarkedCallParser::read_arguments() {
  for (size_t i = 0; i < rest_.size(); ++i) {
    if (!end_.take(rest_[i])) continue;
    say_arguments(rest_.substr(0, i + 1));
    rest_.erase(0, i + 1);
    place_ = Place::kAfterCall;
    return true;
  }
  say_arguments(std::exchange(rest_, {}));
  return false;
}

bool MarkedCallParser::read_after_call() {
  if (!skip_white()) return false;
  if (!marks_.section_begin.empty()) {
    const Begins call = begins(rest_, marks_.call_begin);
    if (call == Begins::kNotCertain) return false;
    if (call == Begins::kYes) {
      keep_raw(marks_.call_begin.size());
      place_ = Place::kHead;
      return true;
    }
  }
  for (const std::string& end : {std::string(trimmed(marks_.arguments_end)), marks_.call_end, marks_.section_end}) {
    const Begins begun = end.empty() ? Begins::kNo : begins(rest_, end);
    if (begun == Begins::kNotCertain) return false;
    if (begun == Begins::kNo) continue;
    rest_.erase(0, end.size());
    if (end == (marks_.section_end.empty() ? marks_.call_end : marks_.section_end)) place_ = Place::kContent;
    return true;
  }
  place_ = Place::kContent;
  return true;
}

/// A text that ends between a name's mark and the arguments.
void MarkedCallParser::begin_cut_call() {
  const size_t at = rest_.find(trimmed(marks_.arguments_begin));
  if (at == std::string::npos) return;
  Head head = head_of(std::string_view(rest_).substr(0, at));
  if (head.name.empty()) return;
  begin_call(std::move(head.name), std::move(head.id));
  place_ = Place::kArguments;
}

void MarkedCallParser::finish() {
  if (place_ == Place::kHead) begin_cut_call();
  if (place_ == Place::kBeforeCall || place_ == Place::kHead) no_call();
  if (place_ != Place::kArguments && place_ != Place::kAfterCall) finish_content();
  const auto begun = [&](std::string_view mark) { return trimmed(mark).starts_with(rest_); };
  const bool mark = begun(marks_.arguments_end) || begun(marks_.call_end) || begun(marks_.section_end) ||
                    (!marks_.section_begin.empty() && begun(marks_.call_begin));
  if (place_ == Place::kAfterCall && !mark) add_content(rest_);
  rest_.clear();
  place_ = Place::kContent;
}

}  // namespace moestro::orchestrator
