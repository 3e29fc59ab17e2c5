#pragma once
// A recorded sequence of uses against a cache of equal slots: what a policy is worth, without a machine to run it on.

#include <cstdint>
#include <span>
#include <vector>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

struct ReplayUse {
  uint32_t key = 0;
  float weight = 1;     ///< as Use::weight
  bool decode = true;   ///< false: only a prompt wanted it
};

struct ReplayScore {
  uint64_t uses = 0, hits = 0, decode_uses = 0, decode_hits = 0;
  double hit_rate() const { return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses); }
  double decode_hit_rate() const {
    return decode_uses == 0 ? 0 : static_cast<double>(decode_hits) / static_cast<double>(decode_uses);
  }
};

/// Whatever is missing is loaded, at the cost of whatever the policy gives up. `slots` > 0. Time runs in the weights of
/// the uses so far; for the oracle, whose future is numbered, in uses of any weight: `number_time`.
ReplayScore replay(std::span<const ReplayUse> uses, CachePolicy& policy, size_t slots, bool number_time = false);

/// The same against Belady's oracle.
ReplayScore replay_oracle(std::span<const ReplayUse> uses, size_t slots);

}  // namespace moestro::policy
