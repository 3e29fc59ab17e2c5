#pragma once
// When batches have their turn although interactive requests could use everything. Interactive requests go first. While
// they leave nothing for batches, batches are owed one token for each `interactive_weight` interactive tokens, and get
// them a step at a time (deficit round robin). So a prompt without competition is never delayed, and no batch starves.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace moestro::orchestrator {

/// How many of `running` sequences may belong to batches, whatever others want.
inline size_t batch_places(size_t running, int64_t interactive_weight) {
  return running / static_cast<size_t>(interactive_weight + 1);
}

/// The tokens that the batches of one worker are owed.
class BatchTurn {
 public:
  BatchTurn() = default;
  explicit BatchTurn(int64_t interactive_weight) : weight_(interactive_weight) {}

  /// Whether prompts of batches go first in a step of this many tokens.
  bool due(int64_t step_tokens) const { return owed_ >= step_tokens; }
  /// A step was planned in which batches got `batch_tokens`. `waited`: prompts of batches waited while others did too;
  /// if not, nothing is owed.
  void planned(bool waited, int64_t step_tokens, int64_t batch_tokens) {
    const int64_t share = std::max<int64_t>(1, step_tokens / (weight_ + 1));
    owed_ = waited ? std::clamp<int64_t>(owed_ + share - batch_tokens, 0, 2 * step_tokens) : 0;
  }

 private:
  int64_t weight_ = 1;
  int64_t owed_ = 0;
};

}  // namespace moestro::orchestrator
