#include "common/policy/random_policy.h"

#include <algorithm>
#include <utility>

namespace moestro::policy {

void RandomPolicy::inserted(uint32_t key, uint32_t group, const Use&, bool) {
  removed(key);
  if (key >= at_.size()) at_.resize(key + 1, kNowhere), group_of_.resize(key + 1);
  if (group >= groups_.size()) groups_.resize(group + 1);
  at_[key] = static_cast<uint32_t>(groups_[group].size());
  group_of_[key] = group;
  groups_[group].push_back(key);
}

void RandomPolicy::removed(uint32_t key) {
  if (key >= at_.size() || at_[key] == kNowhere) return;
  std::vector<uint32_t>& group = groups_[group_of_[key]];
  const uint32_t at = std::exchange(at_[key], kNowhere);
  if (group.back() != key) at_[group[at] = group.back()] = at;
  group.pop_back();
}

uint32_t RandomPolicy::member(std::span<const uint32_t> groups, size_t number) const {
  for (const uint32_t group : groups) {
    if (group >= groups_.size()) continue;
    if (number < groups_[group].size()) return groups_[group][number];
    number -= groups_[group].size();
  }
  return 0;
}

/// Tries keys from a random place on, so that each is asked at most once.
std::optional<uint32_t> RandomPolicy::victim(const Wanted& wanted, const Judge& judge) {
  size_t count = 0;
  for (const uint32_t group : wanted.groups) count += group < groups_.size() ? groups_[group].size() : 0;
  if (count == 0) return std::nullopt;
  const size_t first = std::uniform_int_distribution<size_t>(0, count - 1)(random_);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t key = member(wanted.groups, (first + i) % count);
    Verdict verdict = judge(key);
    if (verdict.kind == Verdict::Kind::kUsed) verdict = judge(key);  // uses are nothing to it
    if (verdict.kind == Verdict::Kind::kTake) return key;
  }
  return std::nullopt;
}

}  // namespace moestro::policy
