#pragma once
// The worker's state of a sequence between plans. All of it can be rebuilt from the sequence's tokens.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/expert_copy.h"
#include "services/worker/engine/logit_adjustment.h"

namespace moestro::engine {

struct SequenceState {
  std::vector<uint32_t> blocks;
  std::vector<uint32_t> memory;  ///< blocks of its source's cross-attention memory
  int64_t memory_tokens = 0;     ///< positions in it; 0: none
  int64_t counted = 0;   ///< positions whose routes have been counted: a recomputed one is not counted again
  PlanId last_plan;
  TokenId last_sampled = -1;
  TokenHistory history;  ///< kept if penalties need it
  bool decoding = false;  ///< has sampled before
  CopyCounts copies;      ///< of all its choices here; with EngineOptions::mixed
};

class SequenceTable {
 public:
  SequenceState* find(SequenceId id) {
    const auto it = states_.find(id);
    return it == states_.end() ? nullptr : &it->second;
  }
  SequenceState& obtain(SequenceId id) { return states_[id]; }
  void forget(SequenceId id) { states_.erase(id); }
  void forget_all() { states_.clear(); }
  size_t size() const { return states_.size(); }

 private:
  std::unordered_map<SequenceId, SequenceState> states_;
};

}  // namespace moestro::engine
