#include "common/prediction/request_predictors.h"

namespace moestro::prediction {
namespace {

// A prompt says as much of the answer as so many tokens of the answer itself, and what all requests use as much as so
// many.
constexpr float kPromptTokens = 8, kEveryoneTokens = 4;
constexpr float kOverallTokens = 16;  ///< of a pattern: what all layers say counts as so many of one layer's
constexpr float kCountsMax = 1U << 16;
constexpr float kSeenMin = 256;  ///< before so many experts were unused for some tokens, patterns say nothing

}  // namespace

void RequestPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  if (history_ != nullptr) everyone_.lean_on(history_->answers);
  states_.begin(sequences, [this] { return State{UsageTable(shape_, 0.01F), UsageTable(shape_, 0.01F)}; });
}

void RequestPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < states_.size(); ++i) {
    UsageTable& own = active_[i].decode ? states_[i].answer : states_[i].prompt;
    own.add(layer, routes[i].counts, active_[i].tokens);
    if (learning_) everyone_.add(layer, routes[i].counts, active_[i].tokens);
  }
}

float RequestPredictor::probability(const State& state, int32_t target, int32_t expert, float everyone) const {
  const float of_prompt = std::min(state.prompt.tokens(target), kPromptTokens), of_answer = state.answer.tokens(target);
  return (of_answer * state.answer.probability(target, expert) + of_prompt * state.prompt.probability(target, expert) +
          kEveryoneTokens * everyone) /
         (of_answer + of_prompt + kEveryoneTokens);
}

bool RequestPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  AnyToken any(out);
  for (int32_t e = 0; e < shape_.experts; ++e) {
    const float everyone = everyone_.probability(target, e);
    for (size_t i = 0; i < states_.size(); ++i)
      any.add(static_cast<size_t>(e), probability(states_[i], target, e, everyone),
              tokens_at(active_[i], layer, target));
  }
  any.finish();
  return true;
}

RecentPredictor::RecentPredictor(const PredictorShape& shape)
    : RowPredictor(shape),
      by_layer_(static_cast<size_t>(shape.layers) * kPatterns),
      overall_(kPatterns),
      chosen_(static_cast<size_t>(shape.experts)) {
  // Until something was seen: the even share, as one token would say it.
  for (Count& c : overall_) c = {static_cast<float>(shape.top_k) / static_cast<float>(shape.experts), 1};
}

void RecentPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  states_.begin(sequences, [this] {
    return State{std::vector<uint8_t>(cells()), std::vector<uint8_t>(static_cast<size_t>(shape_.layers))};
  });
}

float RecentPredictor::probability(int32_t layer, uint32_t pattern) const {
  const Count& all = overall_[pattern];
  const Count& here = by_layer_[static_cast<size_t>(layer) * kPatterns + pattern];
  return (here.used + kOverallTokens * all.used / all.seen) / (here.seen + kOverallTokens);
}

void RecentPredictor::learn(int32_t layer, const State& state, std::span<const activation::ActivationCount> counts) {
  std::fill(chosen_.begin(), chosen_.end(), uint8_t{0});
  for (const activation::ActivationCount& c : counts)
    if (c.expert.value < chosen_.size()) chosen_[c.expert.value] = 1;
  for (int32_t e = 0; e < shape_.experts; ++e) {
    const uint32_t pattern = state.used[cell(layer, e)] & (kPatterns - 1);
    for (Count* c : {&by_layer_[static_cast<size_t>(layer) * kPatterns + pattern], &overall_[pattern]}) {
      if (c->seen > kCountsMax) c->seen /= 2, c->used /= 2;
      c->seen += 1, c->used += static_cast<float>(chosen_[static_cast<size_t>(e)]);
    }
  }
}

void RecentPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < states_.size(); ++i) {
    // The tokens of a prompt's chunk come at once: which of them was last is not known.
    if (!active_[i].decode || active_[i].tokens != 1) continue;
    State& state = states_[i];
    uint8_t& seen = state.seen[static_cast<size_t>(layer)];
    if (seen == kTokens && learning_) learn(layer, state, routes[i].counts);
    if (seen < kTokens) ++seen;
    for (int32_t e = 0; e < shape_.experts; ++e)
      state.used[cell(layer, e)] = static_cast<uint8_t>(state.used[cell(layer, e)] << 1);
    for (const activation::ActivationCount& c : routes[i].counts)
      if (c.expert.value < chosen_.size()) state.used[cell(layer, static_cast<int32_t>(c.expert.value))] |= 1U;
  }
}

bool RecentPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  for (size_t i = 0; i < states_.size(); ++i)
    if (states_[i].seen[static_cast<size_t>(target)] == 0) return false;
  if (states_.size() == 0 || overall_[0].seen < kSeenMin) return false;
  float of_pattern[kPatterns];
  for (uint32_t p = 0; p < kPatterns; ++p) of_pattern[p] = probability(target, p);
  AnyToken any(out);
  for (size_t i = 0; i < states_.size(); ++i)
    for (int32_t e = 0; e < shape_.experts; ++e)
      any.add(static_cast<size_t>(e), of_pattern[states_[i].used[cell(target, e)] & (kPatterns - 1)],
              tokens_at(active_[i], layer, target));
  any.finish();
  return true;
}

}  // namespace moestro::prediction
