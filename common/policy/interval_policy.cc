#include "common/policy/interval_policy.h"

#include <algorithm>
#include <cmath>

#include "common/policy/key_order.h"

namespace moestro::policy {
namespace {

constexpr double kNewest = 1.0 / 8;        ///< weight of the newest interval
constexpr double kFirst = 8;               ///< intervals of a mean key that are assumed after a first use
constexpr double kOverdue = 2;             ///< times its interval: a key that is not used for longer is used less often
constexpr double kStep = 0.125;            ///< of the ranks: intervals that differ less are equal
constexpr double kAgeEvery = 0.25;         ///< uses a key

/// A rank stays while the interval is within a step of it.
double rank_of(double interval, double before) {
  return std::abs(interval + before) <= kStep ? before : -kStep * std::round(interval / kStep);
}

}  // namespace

IntervalPolicy::IntervalPolicy(size_t keys)
    : keys_(static_cast<double>(std::max<size_t>(keys, 1))), first_(std::log2(kFirst * keys_)) {}

/// A prompt uses nearly every expert, each by a part of a token. Parts add up until they are a use; the time since the
/// last one is then the interval, as if a token had used it. Many prompts in turn are a cyclic scan like any other.
void IntervalPolicy::apply(State& state, const Use& use, bool) const {
  state.tie = mixed(state.key);
  if (!state.known) {
    state.interval = first_ - std::log2(std::max(use.weight, kWeightMin));
    state.intervals = 0, state.last = use.time, state.uses = 0;
  } else if (state.uses += use.weight; state.uses >= 1) {  // several, if they were reported together
    const double each = std::log2(std::max((use.time - state.last) / state.uses, 1.0));
    const double newest = std::max(kNewest, 1.0 / (state.intervals + 1));
    state.interval += (each - state.interval) * (1 - std::pow(1 - newest, state.uses));
    state.intervals = std::min<uint32_t>(state.intervals + 1, static_cast<uint32_t>(1 / kNewest));
    state.last = std::max(state.last, use.time), state.uses = 0;
  }
  state.rank = rank_of(state.interval, state.rank);
}

double IntervalPolicy::interval_at(const State& state, double now) const {
  return std::max(state.interval, std::log2(std::max((now - state.last) / kOverdue, 1.0)));
}

/// Puts the ranks of those right that have not been used for long.
void IntervalPolicy::age(double now) {
  if (now - aged_at_ < kAgeEvery * keys_) return;
  aged_at_ = now;
  rerank([&](const State& state) { return rank_of(interval_at(state, now), state.rank); });
}

std::optional<uint32_t> IntervalPolicy::victim(const Wanted& wanted, const Judge& judge) {
  age(wanted.now);
  return RankedPolicy::victim(wanted, judge);
}

double IntervalPolicy::heat(uint32_t key, double now) const {
  return has(key) ? std::exp2(first_ - interval_at(state(key), now)) : 0;
}

}  // namespace moestro::policy
