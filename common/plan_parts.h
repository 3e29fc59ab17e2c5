#pragma once
// Parts of a plan and of its outcome that mean the same to the scheduler and to the engine.

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace moestro {

/// A token's id in a plan or a history: what the parent plan sampled for the sequence.
inline constexpr TokenId kSampledByParent = -1;

/// Copies a KV block's contents. Ids from the number of the device's blocks on are those of host memory.
struct KvCopy {
  uint32_t from = 0, to = 0;
  friend bool operator==(const KvCopy&, const KvCopy&) = default;
};

/// The state of a sequence after its first `tokens` positions goes to a slot (models with a state of each sequence).
struct StateWrite {
  int64_t tokens = 0;
  uint32_t slot = 0;
  friend bool operator==(const StateWrite&, const StateWrite&) = default;
};

/// A sequence that its worker may forget; its first `length` positions stand.
struct ReleasedSequence {
  SequenceId id;
  int64_t length = 0;
  friend bool operator==(const ReleasedSequence&, const ReleasedSequence&) = default;
};

struct TopLogprob {
  TokenId id = 0;
  float logprob = 0;
};

/// A token's log-probability, and those of the best at its place.
struct TokenScore {
  float logprob = 0;
  std::vector<TopLogprob> best;
};

}  // namespace moestro
