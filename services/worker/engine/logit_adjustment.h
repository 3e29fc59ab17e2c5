#pragma once
// The changes of a request to the model's logits before a token is drawn: penalties for tokens that already occur, its
// bias, and the tokens that a grammar allows. Log-probabilities in answers are those of the model's own logits.

#include <span>
#include <string>
#include <vector>

#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

/// The tokens of a sequence for penalties: which occur, and how often each was sampled.
class TokenHistory {
 public:
  struct Entry {
    TokenId id = 0;
    uint32_t sampled = 0;  ///< times among the tokens after the prompt
  };

  /// Entries [first, first + tokens.size()) of the sequence's tokens; `first` is length(), or 0, which replaces all
  /// entries. The first `prompt` tokens are the prompt.
  void update(int64_t first, std::span<const TokenId> tokens, int64_t prompt);
  int64_t length() const { return length_; }
  const std::vector<Entry>& entries() const { return entries_; }  ///< by id

 private:
  void add(TokenId id, bool sampled);
  std::vector<Entry> entries_;
  int64_t length_ = 0;
};

/// Checks the adjustments in a plan for one sequence. `name` begins the message.
Status check_adjustment(const std::string& name, const PlanSequence& sequence, int64_t vocab);

/// The order: repetition penalty (a positive logit of a token that occurs is divided by it, a negative one multiplied);
/// minus frequency_penalty for each time that a token was sampled, and minus presence_penalty if it was sampled; bias;
/// tokens that are not allowed become -infinity.
void adjust_logits(std::span<float> logits, const PlanSequence& sequence, const TokenHistory& history);

}  // namespace moestro::engine
