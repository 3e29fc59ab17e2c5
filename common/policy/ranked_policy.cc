#include "common/policy/ranked_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moestro::policy {

RankedPolicy::State& RankedPolicy::grow_to(uint32_t key) {
  if (key >= states_.size()) {
    states_.resize(std::max<size_t>(key + 1, states_.size() * 2));
    place_.resize(states_.size(), Ranking::kNowhere);
  }
  states_[key].key = key;
  return states_[key];
}

Ranking& RankedPolicy::group(uint32_t index) {
  while (groups_.size() <= index) groups_.emplace_back(place_);
  parked_.resize(groups_.size());
  return groups_[index];
}

void RankedPolicy::sort_in(uint32_t key) {
  const State& state = states_[key];
  const Ranking::Item item{state.shown, state.tie, key};
  if (place_[key] == Ranking::kNowhere) groups_[state.group].insert(item);
  else groups_[state.group].move(item);
}

void RankedPolicy::take_out(uint32_t key) {
  if (place_[key] != Ranking::kNowhere) groups_[states_[key].group].erase(key);
}

void RankedPolicy::inserted(uint32_t key, uint32_t into, const Use& use, bool predicted) {
  removed(key);
  State& state = grow_to(key);
  group(into);
  state.group = into, state.in = true;
  if (predicted) {
    State promised = state;
    apply(promised, use, true);
    state.shown = promised.rank, state.tie = promised.tie;
  } else {
    apply(state, use, true);
    state.known = true;
    state.shown = state.rank;
  }
  sort_in(key);
}

void RankedPolicy::used(uint32_t key, const Use& use) {
  if (!has(key)) return;
  State& state = states_[key];
  const bool first = !state.known || state.shown != state.rank;  // of what a prefetch brought
  apply(state, use, first);
  state.known = true;
  state.shown = state.rank;
  if (!state.parked) sort_in(key);
}

void RankedPolicy::removed(uint32_t key) {
  if (!has(key)) return;
  State& state = states_[key];
  state.in = false;
  if (state.parked) std::erase(parked_[state.group], key);
  state.parked = false;
  take_out(key);
}

void RankedPolicy::forget(uint32_t key) {
  removed(key);
  if (key < states_.size()) states_[key] = State{.key = key};
}

void RankedPolicy::ruled_out(uint32_t key) {
  if (!has(key)) return;
  State& state = states_[key];
  state.shown = state.known ? state.rank : -std::numeric_limits<double>::infinity();
  if (!state.parked) sort_in(key);
}

void RankedPolicy::park(uint32_t key) {
  take_out(key);
  states_[key].parked = true;
  parked_[states_[key].group].push_back(key);
}

bool RankedPolicy::unpark(std::span<const uint32_t> groups) {
  bool any = false;
  for (const uint32_t group : groups) {
    if (group >= parked_.size()) continue;
    for (const uint32_t key : parked_[group]) {
      states_[key].parked = false;
      sort_in(key);
      any = true;
    }
    parked_[group].clear();
  }
  return any;
}

const Ranking::Item* RankedPolicy::coldest(std::span<const uint32_t> groups) const {
  const Ranking::Item* first = nullptr;
  for (const uint32_t group : groups)
    if (group < groups_.size() && !groups_[group].empty() && (first == nullptr || groups_[group].first() < *first))
      first = &groups_[group].first();
  return first;
}

std::optional<uint32_t> RankedPolicy::victim(const Wanted& wanted, const Judge& judge) {
  if (wanted.now - looked_again_at_ >= kLookAgain * static_cast<double>(states_.size())) {
    for (uint32_t group = 0; group < parked_.size(); ++group) unpark({&group, 1});
    looked_again_at_ = wanted.now;
  }
  auto found = search(wanted.groups, judge);
  if (!found && unpark(wanted.groups)) found = search(wanted.groups, judge);
  for (const uint32_t key : spared_) sort_in(key);
  spared_.clear();
  return found;
}

std::optional<uint32_t> RankedPolicy::search(std::span<const uint32_t> groups, const Judge& judge) {
  std::vector<uint32_t> sample;
  size_t corrections = 2 * place_.size() + kLooksMax;  // a key in constant use has news each time it is asked about
  while (const Ranking::Item* first = coldest(groups)) {
    const uint32_t key = first->key;
    const Verdict verdict = judge(key);
    switch (verdict.kind) {
      case Verdict::Kind::kTake: return key;
      case Verdict::Kind::kInUse: park(key); break;
      case Verdict::Kind::kSpared:
        take_out(key);
        spared_.push_back(key);
        break;
      case Verdict::Kind::kUsed:
        if (corrections-- == 0) return std::nullopt;
        used(key, verdict.use);
        sample.push_back(key);
        if (sample.size() < kLooksMax) break;
        if (const auto found = take_from(sample, judge)) return found;
    }
  }
  return std::nullopt;
}

/// The coldest of those whose rank was just put right.
std::optional<uint32_t> RankedPolicy::take_from(std::vector<uint32_t>& sample, const Judge& judge) {
  std::ranges::sort(sample, {}, [this](uint32_t key) { return std::pair(states_[key].shown, states_[key].tie); });
  for (const uint32_t key : sample) {
    if (!has(key) || states_[key].parked || place_[key] == Ranking::kNowhere) continue;
    if (judge(key).kind == Verdict::Kind::kTake) return key;
  }
  sample.clear();
  return std::nullopt;
}

}  // namespace moestro::policy
