#include "orchestrator/api/choice.h"

#include <algorithm>
#include <utility>

#include "orchestrator/tokenizer/unicode.h"

namespace moestro::orchestrator {

Choice::Choice(const Tokenizer& tokenizer, const std::vector<std::string>* stop, std::span<const TokenId> prompt,
               const std::string* echoed, std::string shown)
    : tokenizer_(tokenizer),
      decoder_(tokenizer, /*skip_special=*/shown.empty()),
      prompt_(prompt),
      stop_(stop),
      echoed_(echoed),
      shown_(std::move(shown)) {}

void Choice::look_at_prompt() {
  if (std::exchange(prompt_seen_, true)) return;
  const std::string unsettled = decoder_.prime(prompt_);
  unshown_code_points_ = unsettled.empty() ? 0 : 1;
  if (echoed_ == nullptr) return;
  echo_bytes_ = echoed_->size();
  if (echoed_->ends_with(unsettled)) {
    echo_bytes_ -= unsettled.size();
    decoder_.give_unsettled();
  }
  code_points_ = tok::count_code_points(std::string_view(*echoed_).substr(0, echo_bytes_));
}

std::string Choice::echo() {
  if (echoed_ == nullptr) return {};
  look_at_prompt();
  return echoed_->substr(0, echo_bytes_);
}

bool Choice::push(SampledToken token) {
  if (stopped_) return true;
  look_at_prompt();
  ++count_;
  const bool special = tokenizer_.is_special(token.id);
  const std::string bytes = special ? std::string() : tokenizer_.token_bytes(token.id);
  tokens_.push_back({token.id, std::move(token.score), true, 0, tokenizer_.token_text(token.id)});
  const bool hidden = special && tokenizer_.token(token.id) != shown_;
  const std::string text = hidden ? std::string() : decoder_.push(token.id);
  place(tokens_.back(), bytes, text);
  held_ += text;
  return scan(false);
}

/// Says where a token begins that stands for `bytes` and has made the decoder give `text`.
void Choice::place(ScoredToken& token, const std::string& bytes, const std::string& text) {
  const bool goes_on =
      !bytes.empty() && tok::count_code_points(bytes.substr(0, 1)) == 0;  // with a character begun before
  token.text_offset = code_points_ + unshown_code_points_ - (goes_on && unshown_code_points_ > 0);
  code_points_ += tok::count_code_points(text);
  if (text.empty() && bytes == " ") {
    token.text.clear();  // a text does not begin with the space of its first word
  } else if (text.empty()) {
    unshown_code_points_ += tok::count_code_points(bytes);
  }
  if (text.empty()) return;
  unshown_code_points_ = tok::unfinished_utf8_bytes(bytes) > 0;
  if (bytes == " " + text) token.text = text;  // likewise
  if (text.ends_with(token.text)) token.text_offset = code_points_ - tok::count_code_points(token.text);
}

void Choice::finish() {
  if (stopped_) return;
  if (echoed_ != nullptr) look_at_prompt();  // its end may be held
  const std::string text = decoder_.finish();
  code_points_ += tok::count_code_points(text);
  held_ += text;
  scan(true);
}

/// Moves to ready_ what cannot be part of a stop string. True at a stop string, whose text and what follows it are
/// dropped.
bool Choice::scan(bool last) {
  size_t cut = std::string::npos;
  for (const std::string& s : *stop_) cut = std::min(cut, held_.find(s));
  if (cut != std::string::npos) {
    stopped_ = true;
    const size_t text_end = code_points_ - tok::count_code_points(std::string_view(held_).substr(cut));
    std::erase_if(tokens_, [&](const ScoredToken& t) { return t.text_offset >= text_end; });
    ready_ += held_.substr(0, cut);
    held_.clear();
    return true;
  }
  size_t keep = 0;  // the longest end of held_ that begins a stop string
  if (!last) {
    for (const std::string& s : *stop_) {
      for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n) {
        if (held_.compare(held_.size() - n, n, s, 0, n) == 0) keep = n;
      }
    }
  }
  ready_ += held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

}  // namespace moestro::orchestrator
