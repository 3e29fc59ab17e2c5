#pragma once
// The state that a predictor keeps for each sequence, and the sequences in the current iteration.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/prediction/predictor.h"

namespace moestro::prediction {

template <typename State>
class SequenceStates {
 public:
  /// `make` creates the state of a new sequence.
  template <typename Make>
  void begin(std::span<const IterationSequence> sequences, Make make) {
    active_.clear();
    for (const IterationSequence& s : sequences) {
      auto found = states_.find(s.sequence);
      if (found == states_.end()) found = states_.emplace(s.sequence, make()).first;
      active_.push_back(&found->second);
    }
  }
  /// In the order of begin().
  State& operator[](size_t index) { return *active_[index]; }
  size_t size() const { return active_.size(); }
  void end(uint64_t sequence) {
    const auto found = states_.find(sequence);
    if (found == states_.end()) return;
    std::erase(active_, &found->second);
    states_.erase(found);
  }

 private:
  std::unordered_map<uint64_t, State> states_;  ///< nodes do not move
  std::vector<State*> active_;
};

}  // namespace moestro::prediction
