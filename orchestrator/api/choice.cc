#include "orchestrator/api/choice.h"

#include <algorithm>
#include <utility>

namespace moestro::orchestrator {

Choice::Choice(const Tokenizer& tokenizer, const std::vector<std::string>* stop, std::span<const TokenId> prompt, size_t text_before)
    : decoder_(tokenizer, /*skip_special=*/true), prompt_(prompt), stop_(stop), decoded_(text_before) {}

bool Choice::push(SampledToken token) {
  if (stopped_) return true;
  if (!prompt_.empty()) decoder_.prime(std::exchange(prompt_, {}));
  ++count_;
  tokens_.push_back({token.id, std::move(token.score), true, decoded_});
  const std::string text = decoder_.push(token.id);
  decoded_ += text.size();
  held_ += text;
  return scan(false);
}

void Choice::finish() {
  if (stopped_) return;
  const std::string text = decoder_.finish();
  decoded_ += text.size();
  held_ += text;
  scan(true);
}

/// Moves to ready_ what cannot be part of a stop string. True at a stop string, whose text and what follows it are dropped.
bool Choice::scan(bool last) {
  size_t cut = std::string::npos;
  for (const std::string& s : *stop_) cut = std::min(cut, held_.find(s));
  if (cut != std::string::npos) {
    stopped_ = true;
    const size_t text_end = decoded_ - held_.size() + cut;
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
