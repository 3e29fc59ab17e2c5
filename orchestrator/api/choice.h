#pragma once
// One choice of a completion: its tokens become text, its text is cut at stop strings.

#include <string>
#include <vector>

#include "orchestrator/scheduler/types.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::orchestrator {

/// A token with its score and where its text begins.
struct ScoredToken {
  TokenId id = 0;
  TokenScore score;
  bool has_score = true;    ///< the first token of a prompt has none
  size_t text_offset = 0;   ///< in the choice's text
};

class Choice {
 public:
  /// `stop` and `prompt` outlive it. The prompt is looked at when the first token comes.
  Choice(const Tokenizer& tokenizer, const std::vector<std::string>* stop, std::span<const TokenId> prompt, size_t text_before);

  /// Takes a sampled token. True if its text completed a stop string: the sequence is to end.
  bool push(SampledToken token);
  /// No more tokens come: what was held back is text.
  void finish();

  /// The text that is certain and has not been taken; likewise the tokens.
  std::string take_text() { return std::exchange(ready_, {}); }
  std::vector<ScoredToken> take_tokens() { return std::exchange(tokens_, {}); }
  size_t tokens() const { return count_; }

 private:
  bool scan(bool last);
  StreamDecoder decoder_;
  std::span<const TokenId> prompt_;  ///< not yet seen by the decoder; then empty
  const std::vector<std::string>* stop_;
  std::string held_;       ///< decoded, but might begin a stop string
  std::string ready_;
  size_t decoded_;         ///< bytes decoded so far, echoed prompt included
  std::vector<ScoredToken> tokens_;
  size_t count_ = 0;
  bool stopped_ = false;
};

}  // namespace moestro::orchestrator
