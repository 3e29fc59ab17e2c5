#pragma once
// What a request changes of the model's logits before a token is drawn: penalties of tokens that are there already, a
// bias of its own, and the tokens that a grammar allows. Log-probabilities in answers are of the model's own logits.

#include <span>
#include <string>
#include <vector>

#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

/// The tokens of a sequence as penalties see them: which are there, and how often each was sampled.
class TokenHistory {
 public:
  struct Entry {
    TokenId id = 0;
    uint32_t sampled = 0;  ///< times among the tokens after the prompt
  };

  /// Entries [first, first + tokens.size()) of the sequence's tokens; `first` is 0, which forgets what was there, or
  /// length(). The first `prompt` tokens are the prompt.
  void update(int64_t first, std::span<const TokenId> tokens, int64_t prompt);
  int64_t length() const { return length_; }
  const std::vector<Entry>& entries() const { return entries_; }  ///< by id

 private:
  void add(TokenId id, bool sampled);
  std::vector<Entry> entries_;
  int64_t length_ = 0;
};

/// Checks what a plan says of one sequence's sampling beyond its distribution. `name` begins the message.
Status check_adjustment(const std::string& name, const Sampling& sampling, int64_t vocab);

/// The order: repetition penalty (a positive logit of a token that is there is divided by it, a negative one
/// multiplied), then minus frequency_penalty for each time that a token was sampled and presence_penalty if it was,
/// then the bias, then what is not allowed becomes -infinity.
void adjust_logits(std::span<float> logits, const Sampling& sampling, const TokenHistory& history);

}  // namespace moestro::engine
