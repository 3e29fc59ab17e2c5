#include "common/prediction/popularity.h"

#include <cmath>

namespace moestro::prediction {
namespace {
// Beyond so many tokens the counts are halved: float counts stay exact, and a model's use may drift over weeks.
constexpr float kTokensMax = 1U << 22;
}  // namespace

void UsageTable::add(int32_t layer, std::span<const activation::ActivationCount> counts, int32_t tokens) {
  const size_t first = static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts);
  for (const activation::ActivationCount& c : counts)
    if (c.expert.value < static_cast<uint32_t>(shape_.experts))
      used_[first + c.expert.value] += static_cast<float>(c.tokens);
  float& seen = tokens_[static_cast<size_t>(layer)];
  seen += static_cast<float>(tokens);
  if (seen < kTokensMax) return;
  seen /= 2;
  for (int32_t e = 0; e < shape_.experts; ++e) used_[first + static_cast<size_t>(e)] /= 2;
}

void UsageTable::lean_on(const activation::EamcView& past) {
  const int32_t size = past.size();
  if (size == 0 || size < 2 * leant_on_ || past.shape().cells() != used_.size()) return;
  expected_.assign(used_.size(), 0.0F);
  std::vector<uint8_t> cells(used_.size());
  leant_on_ = 0;
  for (int32_t entry = 0; entry < size; ++entry) {
    if (!past.copy(entry, past.version(entry), 0, cells)) continue;  // being written just now
    ++leant_on_;
    for (size_t i = 0; i < cells.size(); ++i) expected_[i] += static_cast<float>(cells[i]);
  }
  if (leant_on_ == 0) return expected_.clear();
  for (float& p : expected_) p /= 255.0F * static_cast<float>(leant_on_);
}

void PopularityPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < active_.size() && learning_; ++i)
    usage_.add(layer, routes[i].counts, active_[i].tokens);
}

bool PopularityPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  int32_t tokens = 0;
  for (const IterationSequence& s : active_) tokens += tokens_at(s, layer, target);
  for (int32_t e = 0; e < shape_.experts; ++e) {
    const float unused = 1 - usage_.probability(target, e);
    out[static_cast<size_t>(e)] = 1 - (tokens == 1 ? unused : std::pow(unused, static_cast<float>(tokens)));
  }
  return true;
}

}  // namespace moestro::prediction
