#include "orchestrator/api/choice.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/utf8.h"
#include "orchestrator/forms/marker.h"

namespace moestro::orchestrator {

Choice::Choice(const Tokenizer& tokenizer, const std::vector<std::string>* stop, std::span<const TokenId> prompt,
               const std::string* echoed, ChoiceOptions options)
    : tokenizer_(tokenizer),
      decoder_(tokenizer, /*skip_special=*/options.shown.empty() && !options.show_special),
      prompt_(prompt),
      stop_(stop),
      echoed_(echoed),
      options_(std::move(options)) {}

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
  code_points_ = count_code_points(std::string_view(*echoed_).substr(0, echo_bytes_));
}

bool Choice::first_space_unshown() {
  if (!StreamDecoder(tokenizer_, /*skip_special=*/true).drops_space()) return false;  // nor behind any prompt
  look_at_prompt();
  return decoder_.drops_space();
}

std::string Choice::echo() {
  if (echoed_ == nullptr) return {};
  look_at_prompt();
  return echoed_->substr(0, echo_bytes_);
}

bool Choice::is_shown(TokenId token) const {
  const bool ends = std::ranges::find(options_.ends, token) != options_.ends.end();
  if (ends && !options_.include_stop) return false;
  return options_.show_special || !tokenizer_.is_special(token) ||
         std::ranges::find(options_.shown, tokenizer_.token(token)) != options_.shown.end();
}

bool Choice::push(SampledToken token) {
  if (stopped_at_ != nullptr) return true;
  look_at_prompt();
  ++count_;
  const std::string bytes = tokenizer_.is_special(token.id) ? std::string() : tokenizer_.token_bytes(token.id);
  tokens_.push_back({token.id, std::move(token.score), true, 0, tokenizer_.token_text(token.id)});
  const std::string text = is_shown(token.id) ? decoder_.push(token.id) : std::string();
  place(tokens_.back(), bytes, text);
  say(text, false);
  return stopped_at_ != nullptr;
}

/// Says where a token begins that stands for `bytes` and has made the decoder give `text`.
void Choice::place(ScoredToken& token, const std::string& bytes, const std::string& text) {
  const bool goes_on =
      !bytes.empty() && count_code_points(bytes.substr(0, 1)) == 0;  // with a character begun before
  token.text_offset = code_points_ + unshown_code_points_ - (goes_on && unshown_code_points_ > 0);
  code_points_ += count_code_points(text);
  if (text.empty() && bytes == " ") {
    token.text.clear();  // a text does not begin with the space of its first word
  } else if (text.empty()) {
    unshown_code_points_ += count_code_points(bytes);
  }
  if (text.empty()) return;
  unshown_code_points_ = unfinished_utf8_bytes(bytes) > 0;
  if (bytes == " " + text) token.text = text;  // likewise
  if (text.ends_with(token.text)) token.text_offset = code_points_ - count_code_points(token.text);
}

void Choice::finish() {
  if (stopped_at_ != nullptr) return;
  if (echoed_ != nullptr) look_at_prompt();  // its end may be held
  const std::string text = decoder_.finish();
  code_points_ += count_code_points(text);
  say(text, true);
  over_ = true;
}

/// A stop string cuts no earlier than where the held text begins. A token that begins there or later may go with it,
/// so it waits until the text goes on, as the text itself does.
std::vector<ScoredToken> Choice::take_tokens() {
  if (stop_->empty() || over_) return std::exchange(tokens_, {});
  const size_t certain = code_points_ - count_code_points(held_);
  const auto end = std::ranges::find_if(tokens_, [&](const ScoredToken& t) { return t.text_offset >= certain; });
  std::vector<ScoredToken> taken(std::make_move_iterator(tokens_.begin()), std::make_move_iterator(end));
  tokens_.erase(tokens_.begin(), end);
  return taken;
}

/// Moves to ready_ what cannot be part of a stop string. At a stop string that ends in `text`, it and what follows it
/// are dropped.
void Choice::say(const std::string& text, bool last) {
  const size_t before = held_.size();
  held_ += text;
  size_t cut = std::string::npos;
  for (const std::string& s : *stop_) {
    if (count_ <= static_cast<size_t>(options_.min_tokens)) break;
    const size_t at = held_.find(s, before < s.size() ? 0 : before - s.size() + 1);
    if (at < cut) cut = at, stopped_at_ = &s;
  }
  if (stopped_at_ != nullptr) {
    if (options_.include_stop) cut += stopped_at_->size();
    const size_t text_end = code_points_ - count_code_points(std::string_view(held_).substr(cut));
    std::erase_if(tokens_, [&](const ScoredToken& t) { return t.text_offset >= text_end; });
    ready_ += held_.substr(0, cut);
    held_.clear();
    over_ = true;
    return;
  }
  size_t keep = 0;  // the longest end of held_ that begins a stop string
  for (const std::string& s : *stop_)
    if (!last) keep = std::max(keep, begun_marker(held_, s));
  ready_ += held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

}  // namespace moestro::orchestrator
