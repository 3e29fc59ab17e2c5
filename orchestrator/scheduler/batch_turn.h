#pragma once
// When batches have their turn although others want all there is. Interactive requests go first; while they leave
// batches nothing, batches are owed one token for each `interactive_weight` of theirs, and get what they are owed a
// step at a time (deficit round robin): so a prompt that nobody else competes with is never delayed, and no batch
// stands still.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace moestro::orchestrator {

/// Of `running` sequences so many may be a batch's whatever others want.
inline size_t batch_places(size_t running, int64_t interactive_weight) {
  return running / static_cast<size_t>(interactive_weight + 1);
}

/// The tokens that the batches of one worker are owed.
class BatchTurn {
 public:
  BatchTurn() = default;
  explicit BatchTurn(int64_t interactive_weight) : weight_(interactive_weight) {}

  /// Whether prompts of batches go before others in a step of so many tokens.
  bool due(int64_t step_tokens) const { return owed_ >= step_tokens; }
  /// A step was planned: prompts of batches waited beside others (or did not, then nothing is owed), and batches got so
  /// many tokens of it.
  void planned(bool waited, int64_t step_tokens, int64_t batch_tokens) {
    const int64_t share = std::max<int64_t>(1, step_tokens / (weight_ + 1));
    owed_ = waited ? std::clamp<int64_t>(owed_ + share - batch_tokens, 0, 2 * step_tokens) : 0;
  }

 private:
  int64_t weight_ = 1;
  int64_t owed_ = 0;
};

}  // namespace moestro::orchestrator
