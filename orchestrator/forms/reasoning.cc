#include "orchestrator/forms/reasoning.h"

#include "orchestrator/forms/harmony.h"
#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

namespace {
constexpr const char* kWhite = " \t\r\n";
}

void ReasoningParser::push(std::string_view text) {
  rest_ += text;
  if (place_ == Place::kBegin) read_begin();
  if (!style_.channel_tokens.empty()) read_channels();
  else if (place_ == Place::kReasoning) read_reasoning();
  if (place_ == Place::kAfter) read_after();
  if (place_ == Place::kAnswer) read_answer();
  if (place_ == Place::kContent) add(false, std::exchange(rest_, {}));
}

void ReasoningParser::read_begin() {
  const std::string_view word = std::string_view(rest_).substr(std::min(rest_.find_first_not_of(kWhite), rest_.size()));
  if (word.starts_with(style_.begin)) {
    rest_.erase(0, rest_.size() - word.size() + style_.begin.size());
    place_ = Place::kReasoning;
  } else if (!style_.begin.starts_with(word)) {
    place_ = Place::kContent;
  }
}

void ReasoningParser::read_reasoning() {
  if (const size_t end = rest_.find(style_.end); end != std::string::npos) {
    say(std::string_view(rest_).substr(0, end));
    rest_.erase(0, end + style_.end.size());
    place_ = Place::kAfter;
    return;
  }
  const std::string_view certain = std::string_view(rest_).substr(0, rest_.size() - begun_marker(rest_, style_.end));
  const size_t last = certain.find_last_not_of(kWhite);  // white space before the end is none of the reasoning
  if (last == std::string_view::npos) return;
  say(certain.substr(0, last + 1));
  rest_.erase(0, last + 1);
}

void ReasoningParser::read_channels() {
  while (place_ == Place::kHead ? read_head() : place_ != Place::kContent && read_message()) {
  }
}

/// <|start|>assistant<|channel|>analysis<|message|>; the first head of an answer has no beginning. True if more can be
/// read.
bool ReasoningParser::read_head() {
  using namespace harmony;
  constexpr size_t kChannelHeadBytesMax = 256;
  const auto may_be = [&](std::string_view mark) { return begins(rest_, mark) != Begins::kNo; };
  const size_t end = rest_.find(kMessage);
  const bool head = may_be(kStart) || may_be(kChannel) || may_be(kToFunction);
  const size_t mark_bytes = std::string_view(kMessage).size();
  const bool too_long = end == std::string::npos ? rest_.size() >= kChannelHeadBytesMax + mark_bytes
                                                 : end > kChannelHeadBytesMax;
  if (!head || too_long) {
    place_ = Place::kContent;
    return false;
  }
  if (end == std::string::npos) return false;
  begin_message(std::string_view(rest_).substr(0, end));
  rest_.erase(0, end + mark_bytes);
  return true;
}

void ReasoningParser::begin_message(std::string_view head) {
  using namespace harmony;
  const std::string_view mark = kChannel, to = kToFunction;
  const size_t channel = head.find(mark), function = head.find(to);
  if (calls_ && function != std::string_view::npos) {
    const std::string_view name = head.substr(function + to.size());
    add(false, kCallHead + std::string(name.substr(0, name.find_first_of(" <"))) + kMessage);
    place_ = Place::kCall;
    return;
  }
  const bool reasons = channel != std::string_view::npos && head.substr(channel + mark.size()) == "analysis";
  place_ = reasons ? Place::kReasoning : Place::kMessage;
  apart_ = reasons && said_;
}

bool ReasoningParser::read_message() {
  if (place_ != Place::kReasoning) return read_body();
  read_reasoning();
  if (place_ != Place::kAfter) return false;
  place_ = Place::kHead;
  return !rest_.empty();
}

/// A message of the answer, or to a function, up to its end.
bool ReasoningParser::read_body() {
  size_t end = std::string::npos, certain = rest_.size(), mark_bytes = 0;
  for (const std::string_view mark : {std::string_view(style_.end), std::string_view(harmony::kCall)}) {
    const size_t at = rest_.find(mark);
    if (at < end) end = at, mark_bytes = mark.size();
    certain = std::min(certain, rest_.size() - begun_marker(rest_, mark));
  }
  const bool ends = end != std::string::npos;
  if (ends) certain = end;
  add(false, std::string_view(rest_).substr(0, certain));
  rest_.erase(0, certain + mark_bytes);
  if (!ends) return false;
  if (place_ == Place::kCall) add(false, harmony::kCall);
  place_ = Place::kHead;
  return !rest_.empty();
}

/// Gives out reasoning, white space at its beginning and end aside.
void ReasoningParser::say(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(kWhite) + 1);
  if (!said_) text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  if (apart_ && !text.empty()) add(true, "\n\n"), apart_ = false;
  said_ = said_ || !text.empty();
  add(true, text);
}

void ReasoningParser::add(bool reasoning, std::string_view text) {
  if (text.empty()) return;
  if (said_texts_.empty() || said_texts_.back().reasoning != reasoning) said_texts_.push_back({reasoning, ""});
  said_texts_.back().text += text;
}

void ReasoningParser::read_after() {
  rest_.erase(0, std::min(rest_.find_first_not_of(kWhite), rest_.size()));
  if (rest_.empty()) return;
  const bool may_be_marked = !style_.answer_begin.empty() && !answered_;
  const Begins answer = may_be_marked ? begins(rest_, style_.answer_begin) : Begins::kNo;
  if (answer == Begins::kNotCertain) return;
  place_ = answer == Begins::kYes ? Place::kAnswer : Place::kContent;
  if (answer == Begins::kYes) rest_.erase(0, style_.answer_begin.size());
}

/// The answer between its markers, white space at its beginning and end aside.
void ReasoningParser::read_answer() {
  const size_t end = rest_.find(style_.answer_end);
  const bool ends = end != std::string::npos;
  std::string_view certain(rest_);
  certain = certain.substr(0, ends ? end : rest_.size() - begun_marker(rest_, style_.answer_end));
  certain = certain.substr(0, certain.find_last_not_of(kWhite) + 1);
  const size_t bytes = certain.size();
  if (!answer_said_) certain.remove_prefix(std::min(certain.find_first_not_of(kWhite), certain.size()));
  answer_said_ = answer_said_ || !certain.empty();
  add(false, certain);
  rest_.erase(0, ends ? end + style_.answer_end.size() : bytes);
  if (!ends) return;
  answered_ = true;
  place_ = Place::kAfter;
  read_after();
}

/// A head that is cut says nothing, unless it was a call's, or no head yet.
bool ReasoningParser::head_is_text() const {
  using namespace harmony;
  return !(rest_.starts_with(kStart) || rest_.starts_with(kChannel)) || rest_.find(kToFunction) != std::string::npos;
}

void ReasoningParser::finish() {
  if (place_ == Place::kReasoning) say(rest_);
  else if (place_ != Place::kHead || head_is_text()) add(false, rest_);
  rest_.clear();
}

}  // namespace moestro::orchestrator
