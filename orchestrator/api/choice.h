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
  bool has_score = true;   ///< the first token of a prompt has none
  size_t text_offset = 0;  ///< in the choice's text, echoed prompt included, in code points
  std::string text;        ///< as the choice's text shows it; a special token by its name
};

struct ChoiceOptions {
  int64_t min_tokens = 0;          ///< a stop string that ends among the first so many tokens does not count
  std::vector<TokenId> ends = {};  ///< tokens that end the choice
  bool include_stop = false;       ///< the text has the stop string, or the token that ended it
  bool show_special = false;       ///< the text has special tokens
  std::vector<std::string> shown = {};  ///< it has those that are spelled so in any case
};

class Choice {
 public:
  /// `stop`, `prompt` and `echoed` outlive it. The prompt is looked at when the first token comes, or the echo is asked
  /// for. `echoed` is the prompt's text if it is part of the choice's text, else null.
  Choice(const Tokenizer& tokenizer, const std::vector<std::string>* stop, std::span<const TokenId> prompt,
         const std::string* echoed, ChoiceOptions options = {});

  /// Whether its text, as that of a whole answer, does not show the space that its first token may begin with.
  bool first_space_unshown();
  /// Takes a sampled token. True if its text completed a stop string: the sequence is to end.
  bool push(SampledToken token);
  /// No more tokens come: what was held back is text.
  void finish();
  /// The stop string that ended it; null: none did.
  const std::string* stopped_at() const { return stopped_at_; }

  /// The echoed prompt's text, which the choice's own follows; "" if there is no echo. A character that the prompt only
  /// begins is in the choice's own text.
  std::string echo();
  /// The text that is certain and has not been taken.
  std::string take_text() { return std::exchange(ready_, {}); }
  /// Likewise the tokens: those that a stop string can no longer cut off.
  std::vector<ScoredToken> take_tokens();
  size_t tokens() const { return count_; }

 private:
  void look_at_prompt();
  void place(ScoredToken& token, const std::string& bytes, const std::string& text);
  bool is_shown(TokenId token) const;
  void say(const std::string& text, bool last);
  Tokenizer tokenizer_;
  StreamDecoder decoder_;
  std::span<const TokenId> prompt_;
  const std::vector<std::string>* stop_;
  const std::string* echoed_;
  const ChoiceOptions options_;
  bool prompt_seen_ = false;
  size_t echo_bytes_ = 0;  ///< of echoed_
  std::string held_;       ///< decoded, but might begin a stop string
  std::string ready_;
  size_t code_points_ = 0;         ///< decoded so far, echoed prompt included
  size_t unshown_code_points_ = 0; ///< begun by tokens whose text the decoder holds
  std::vector<ScoredToken> tokens_;
  size_t count_ = 0;
  bool over_ = false;  ///< no stop string can come any more
  const std::string* stopped_at_ = nullptr;
};

}  // namespace moestro::orchestrator
