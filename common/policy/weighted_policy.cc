#include "common/policy/weighted_policy.h"

#include <algorithm>
#include <limits>

namespace moestro::policy {

WeightedPolicy::WeightedPolicy(WeightedOptions options) : options_(options) {}

WeightedPolicy::State& WeightedPolicy::grow_to(uint32_t key) {
  if (key >= states_.size()) states_.resize(std::max<size_t>(key + 1, states_.size() * 2));
  return states_[key];
}

void WeightedPolicy::count(State& state, const Use& use) const {
  if (!use.scan) state.last = token_;
  state.uses += use.weight;
  if (!use.low_precision) state.high += use.weight;
}

void WeightedPolicy::inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) {
  removed(key);
  State& state = grow_to(key);
  state.in = true, state.group = group, state.place = static_cast<uint32_t>(members_.size());
  members_.push_back(key);
  state.promised = 0;
  if (predicted) state.promised = token_;
  else count(state, use);
}

void WeightedPolicy::used(uint32_t key, const Use& use) {
  if (key >= states_.size() || !states_[key].in) return;
  states_[key].promised = 0;
  count(states_[key], use);
}

void WeightedPolicy::ruled_out(uint32_t key) {
  if (key < states_.size()) states_[key].promised = 0;
}

void WeightedPolicy::removed(uint32_t key) {
  if (key >= states_.size() || !states_[key].in) return;
  State& state = states_[key];
  state.in = false;
  const uint32_t last = members_.back();
  members_[state.place] = last, states_[last].place = state.place;
  members_.pop_back();
}

void WeightedPolicy::forget(uint32_t key) {
  removed(key);
  if (key < states_.size()) states_[key] = State{};
}

double WeightedPolicy::worth(uint32_t key) const {
  const State& state = states_[key];
  const int32_t layer = static_cast<int32_t>(key) / std::max(1, options_.experts);
  const int32_t ahead = layer > layer_ ? layer - layer_ : layer - layer_ + options_.layers;
  const double near = 1 - static_cast<double>(ahead) / options_.layers;
  const double recent = std::max(0.0, std::max(state.last, state.promised) - (token_ - span_));
  return (options_.recency * recent + options_.frequency * state.uses + options_.high_frequency * state.high) / span_ +
         options_.nearness * near;
}

std::optional<uint32_t> WeightedPolicy::victim(const Wanted& wanted, const Judge& judge) {
  order_.clear();
  for (const uint32_t key : members_)
    if (std::ranges::find(wanted.groups, states_[key].group) != wanted.groups.end())
      order_.emplace_back(worth(key), key);
  std::ranges::make_heap(order_, std::greater<>{});
  size_t corrections = 2 * members_.size() + 1;  // a key in constant use has news each time it is asked about
  while (!order_.empty()) {
    const uint32_t key = order_.front().second;
    std::ranges::pop_heap(order_, std::greater<>{});
    order_.pop_back();
    const Verdict verdict = judge(key);
    if (verdict.kind == Verdict::Kind::kTake) return key;
    if (verdict.kind != Verdict::Kind::kUsed) continue;
    if (corrections-- == 0) return std::nullopt;
    used(key, verdict.use);
    order_.emplace_back(worth(key), key);
    std::ranges::push_heap(order_, std::greater<>{});
  }
  return std::nullopt;
}

void WeightedPolicy::at_layer(int32_t layer) {
  if (layer <= layer_) ++token_, ++span_;
  layer_ = layer;
  if (span_ < options_.tokens_max) return;
  span_ /= 2;
  for (State& state : states_) state.uses /= 2, state.high /= 2;
}

void WeightedPolicy::sequence_began(int32_t sequences) {
  const double kept = sequences > 1 ? (sequences - 1.0) / sequences : 0.0;
  for (State& state : states_) {
    state.uses *= kept, state.high *= kept;
    if (sequences <= 1) state.last = state.promised = 0;
  }
  if (sequences <= 1) token_ = span_ = 1;
}

double WeightedPolicy::heat(uint32_t key, double) const {
  return key < states_.size() && states_[key].in ? worth(key) : 0;
}

WeightedOptions calibrate_weights(WeightedOptions shape, int steps,
                                  const std::function<double(const WeightedOptions&)>& penalty) {
  WeightedOptions best = shape;
  double least = std::numeric_limits<double>::infinity();
  for (int recency = 0; recency <= steps; ++recency)
    for (int frequency = 0; frequency + recency <= steps; ++frequency)
      for (int high = 0; high + frequency + recency <= steps; ++high) {
        WeightedOptions tried = shape;
        tried.recency = static_cast<double>(recency) / steps, tried.frequency = static_cast<double>(frequency) / steps;
        tried.high_frequency = static_cast<double>(high) / steps,
        tried.nearness = static_cast<double>(steps - recency - frequency - high) / steps;
        const double found = penalty(tried);
        if (found < least) least = found, best = tried;
      }
  return best;
}

}  // namespace moestro::policy
