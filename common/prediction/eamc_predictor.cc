#include "common/prediction/eamc_predictor.h"

#include <cmath>
#include <utility>

namespace moestro::prediction {

EamcPredictor::EamcPredictor(const PredictorShape& shape, const activation::HistoryView& history,
                             const EamcOptions& options)
    : RowPredictor(shape),
      history_(history),
      options_(options),
      per_token_(static_cast<size_t>(shape.experts)),
      row_(static_cast<size_t>(shape.experts)) {}

void EamcPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  states_.begin(sequences, [this] {
    return State{{activation::EamcMatcher(history_.prompts, options_.request_tokens)},
                 {activation::EamcMatcher(history_.answers, options_.request_tokens)}};
  });
  of_each([](Matches& m, size_t) { m.matcher.begin_iteration(); });
}

void EamcPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  of_each([&](Matches& m, size_t i) {
    if (i < routes.size()) m.matcher.add_row(layer, routes[i].counts, active_[i].tokens);
  });
}

void EamcPredictor::end_iteration() {
  of_each([](Matches& m, size_t) { m.matcher.end_iteration(); });
}

std::span<const activation::EamcMatch> EamcPredictor::weighed(Matches& matches) {
  const std::span<const activation::EamcMatch> best = matches.matcher.best(options_.matches);
  if (std::exchange(matches.weighed, true)) return best;
  for (size_t i = 0; i < best.size(); ++i)
    matches.weights[i] = std::pow(best[i].score / best.front().score, options_.sharpness);
  return best;
}

bool EamcPredictor::add_matches(Matches& matches, int32_t target) {
  std::fill(per_token_.begin(), per_token_.end(), 0.0F);
  float total = 0;
  const std::span<const activation::EamcMatch> best = weighed(matches);
  for (size_t i = 0; i < best.size(); ++i) {
    const float weight = matches.weights[i];
    if (!matches.matcher.read_row(best[i], target, row_)) continue;  // it has made room for another one
    for (size_t e = 0; e < per_token_.size(); ++e) per_token_[e] += weight * static_cast<float>(row_[e]);
  }
  for (const float p : per_token_) total += p;
  if (total == 0) return false;
  // A token chooses top_k experts of the row.
  for (float& p : per_token_) p = std::min(1.0F, p * static_cast<float>(shape_.top_k) / total);
  return true;
}

bool EamcPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  if (states_.size() == 0) return false;
  for (size_t i = 0; i < states_.size(); ++i) {
    const bool prompt = !active_[i].decode && target > layer;
    if (weighed(prompt ? states_[i].prompt : states_[i].answer).empty()) return false;
  }
  AnyToken any(out);
  for (size_t i = 0; i < states_.size(); ++i) {
    const bool prompt = !active_[i].decode && target > layer;
    const float even = static_cast<float>(shape_.top_k) / static_cast<float>(shape_.experts);
    if (!add_matches(prompt ? states_[i].prompt : states_[i].answer, target))
      std::fill(per_token_.begin(), per_token_.end(), even);
    for (size_t e = 0; e < per_token_.size(); ++e) any.add(e, per_token_[e], tokens_at(active_[i], layer, target));
  }
  any.finish();
  return true;
}

}  // namespace moestro::prediction
