#include "tests/policy/replay.h"

#include <algorithm>

#include "common/check.h"
#include "common/policy/oracle_policy.h"

namespace moestro::policy {

ReplayScore replay(std::span<const ReplayUse> uses, CachePolicy& policy, size_t slots, bool number_time) {
  MOESTRO_CHECK(slots > 0, "a cache without slots");
  uint32_t keys = 0;
  for (const ReplayUse& use : uses) keys = std::max(keys, use.key + 1);
  std::vector<bool> in(keys);
  const uint32_t group = 0;
  const Judge take = [](uint32_t) { return Verdict{}; };
  ReplayScore score;
  double time = 0;
  size_t held = 0;
  for (const ReplayUse& use : uses) {
    if (!number_time) time += use.weight;
    const bool hit = in[use.key];
    ++score.uses, score.hits += hit;
    score.decode_uses += use.decode, score.decode_hits += use.decode && hit;
    if (hit) {
      policy.used(use.key, {time, use.weight, use.weight < 1});
    } else {
      if (held == slots) {
        const auto victim = policy.victim({{&group, 1}, time}, take);
        MOESTRO_CHECK(victim.has_value() && in[*victim], "a full cache whose policy has no victim");
        policy.removed(*victim);
        in[*victim] = false, --held;
      }
      policy.inserted(use.key, group, {time, use.weight, use.weight < 1});
      in[use.key] = true, ++held;
    }
    if (number_time) ++time;
  }
  return score;
}

ReplayScore replay_oracle(std::span<const ReplayUse> uses, size_t slots) {
  std::vector<uint32_t> future;
  for (const ReplayUse& use : uses) future.push_back(use.key);
  OraclePolicy oracle(future);
  return replay(uses, oracle, slots, true);
}

}  // namespace moestro::policy
