#include "common/prediction/simple_predictors.h"

namespace moestro::prediction {

void GatePredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  std::fill(known_.begin(), known_.end(), uint8_t{0});
}

void GatePredictor::guessed(int32_t, std::span<const GateGuess> guesses) {
  for (const GateGuess& g : guesses) {
    if (g.layer < 0 || g.layer >= shape_.layers || g.probability.size() != static_cast<size_t>(shape_.experts))
      continue;
    std::copy(g.probability.begin(), g.probability.end(),
              guesses_.begin() + static_cast<std::ptrdiff_t>(cell(g.layer, 0)));
    known_[static_cast<size_t>(g.layer)] = 1;
  }
}

bool GatePredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  // A guess of this iteration says nothing of the next one's token.
  if (target <= layer || known_[static_cast<size_t>(target)] == 0) return false;
  std::copy_n(guesses_.begin() + static_cast<std::ptrdiff_t>(cell(target, 0)), out.size(), out.begin());
  return true;
}

}  // namespace moestro::prediction
