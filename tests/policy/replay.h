#pragma once
// Runs a recorded sequence of uses on a cache with equal slots, to measure what a policy is worth.

#include <cstdint>
#include <span>
#include <vector>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

struct ReplayUse {
  uint32_t key = 0;
  float weight = 1;     ///< as Use::weight
  bool decode = true;   ///< false: only a prompt needed it
};

struct ReplayScore {
  uint64_t uses = 0, hits = 0, decode_uses = 0, decode_hits = 0;
  double hit_rate() const { return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses); }
  double decode_hit_rate() const {
    return decode_uses == 0 ? 0 : static_cast<double>(decode_hits) / static_cast<double>(decode_uses);
  }
};

/// A missing entry is loaded in place of the policy's victim. `slots` > 0. Time is the sum of the weights of the uses
/// so far. With `number_time` it is the number of uses, which the oracle needs because its future is numbered.
ReplayScore replay(std::span<const ReplayUse> uses, CachePolicy& policy, size_t slots, bool number_time = false);

/// The same against Belady's oracle.
ReplayScore replay_oracle(std::span<const ReplayUse> uses, size_t slots);

}  // namespace moestro::policy
