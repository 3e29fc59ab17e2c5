#include "common/prediction/echo.h"

#include <utility>

namespace moestro::prediction {
namespace {

// What the regression of a mixture makes of it is learned; alone, this is about how often an echo is right.
constexpr float kUsed = 0.85F;
constexpr int32_t kDepth = 2;  ///< layers that have to be the same

}  // namespace

void EchoPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  const size_t cells = shape_.experts <= kExpertsMax ? kTokens * static_cast<size_t>(shape_.layers) : 0;
  states_.begin(sequences, [cells] { return State{std::vector<uint32_t>(cells)}; });
  if (cells == 0) return;
  for (size_t i = 0; i < states_.size(); ++i) std::fill_n(token(states_[i], states_[i].tokens), shape_.layers, 0U);
}

void EchoPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < states_.size(); ++i) {
    // Of several tokens at once it is not known which of them chose what.
    if (active_[i].tokens != 1 || states_[i].sets.empty()) continue;
    uint32_t& set = token(states_[i], states_[i].tokens)[layer];
    for (const activation::ActivationCount& c : routes[i].counts)
      if (c.expert.value < static_cast<uint32_t>(kExpertsMax)) set |= 1U << c.expert.value;
  }
}

void EchoPredictor::end_iteration() {
  for (size_t i = 0; i < states_.size(); ++i)
    if (active_[i].tokens == 1) ++states_[i].tokens;
}

const uint32_t* EchoPredictor::find(State& state, int32_t layer) const {
  const size_t wanted = state.tokens * static_cast<size_t>(shape_.layers + 1) + static_cast<size_t>(layer + 1);
  if (std::exchange(state.looked_up, wanted) != wanted) state.found = search(state, layer);
  return state.found;
}

const uint32_t* EchoPredictor::search(State& state, int32_t layer) const {
  if (layer + 1 < kDepth || state.sets.empty()) return nullptr;
  const uint32_t* now = token(state, state.tokens);
  const uint32_t last = now[layer], earlier = now[layer - 1];
  if (last == 0 || earlier == 0) return nullptr;
  const size_t oldest = state.tokens >= kTokens ? state.tokens - kTokens + 1 : 0;
  for (size_t number = state.tokens; number > oldest; --number) {
    const uint32_t* then = token(state, number - 1);
    if (then[layer] == last && then[layer - 1] == earlier) return then;
  }
  return nullptr;
}

bool EchoPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  if (target <= layer || states_.size() == 0) return false;
  const auto k = static_cast<float>(shape_.top_k), experts = static_cast<float>(shape_.experts);
  const float other = experts > k ? k * (1 - kUsed) / (experts - k) : kUsed;
  AnyToken any(out);
  for (size_t i = 0; i < states_.size(); ++i) {
    const uint32_t* then = find(states_[i], layer);
    if (then == nullptr || then[target] == 0) return false;
    for (size_t e = 0; e < out.size(); ++e)
      any.add(e, (then[target] >> e & 1U) != 0 ? kUsed : other, tokens_at(active_[i], layer, target));
  }
  any.finish();
  return true;
}

}  // namespace moestro::prediction
