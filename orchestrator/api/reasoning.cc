#include "orchestrator/api/reasoning.h"

#include "orchestrator/api/marker.h"

namespace moestro::orchestrator {

namespace {
constexpr const char* kWhite = " \t\r\n";
}

void ReasoningParser::push(std::string_view text) {
  rest_ += text;
  if (place_ == Place::kBegin) read_begin();
  if (!style_.channel_tokens.empty())
    while (place_ == Place::kHead ? read_head() : place_ == Place::kContent ? false : read_message()) {
    }
  else if (place_ == Place::kReasoning)
    read_reasoning();
  if (place_ == Place::kAfter) read_after();
  if (place_ == Place::kContent) content_ += std::exchange(rest_, {});
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

/// <|start|>assistant<|channel|>analysis<|message|>; the first head of an answer has no beginning. True if more can be
/// read.
bool ReasoningParser::read_head() {
  constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
  constexpr size_t kHeadBytesMax = 256;
  const auto may_be = [&](std::string_view mark) { return rest_.starts_with(mark) || mark.starts_with(rest_); };
  const size_t end = rest_.find(kMessage);
  if ((!may_be(kStart) && !may_be(kChannel)) || (end == std::string::npos && rest_.size() > kHeadBytesMax)) {
    place_ = Place::kContent;
    return false;
  }
  if (end == std::string::npos) return false;
  const size_t channel = rest_.find(kChannel);
  const bool reasons = channel < end && std::string_view(rest_).substr(channel + kChannel.size(), end - channel -
                                                                        kChannel.size()) == "analysis";
  place_ = reasons ? Place::kReasoning : Place::kMessage;
  apart_ = reasons && said_;
  rest_.erase(0, end + kMessage.size());
  return true;
}

bool ReasoningParser::read_message() {
  if (place_ == Place::kReasoning) {
    read_reasoning();
    if (place_ != Place::kAfter) return false;
    place_ = Place::kHead;
    return !rest_.empty();
  }
  const size_t end = rest_.find(style_.end);
  const size_t certain = end != std::string::npos ? end : rest_.size() - begun_marker(rest_, style_.end);
  content_ += std::string_view(rest_).substr(0, certain);
  rest_.erase(0, end == std::string::npos ? certain : end + style_.end.size());
  if (end != std::string::npos) place_ = Place::kHead;
  return end != std::string::npos && !rest_.empty();
}

/// Gives out reasoning, white space at its beginning and end aside.
void ReasoningParser::say(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(kWhite) + 1);
  if (!said_) text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
  if (apart_ && !text.empty()) reasoning_ += "\n\n", apart_ = false;
  said_ = said_ || !text.empty();
  reasoning_ += text;
}

void ReasoningParser::read_after() {
  rest_.erase(0, std::min(rest_.find_first_not_of(kWhite), rest_.size()));
  if (!rest_.empty()) place_ = Place::kContent;
}

void ReasoningParser::finish() {
  if (place_ == Place::kReasoning) say(rest_);
  if (place_ == Place::kBegin || place_ == Place::kMessage) content_ += rest_;
  rest_.clear();
}

}  // namespace moestro::orchestrator
