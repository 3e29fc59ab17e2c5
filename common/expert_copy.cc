#include "common/expert_copy.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace moestro {

/// Experts per token are few, so each looks at all others. Sums run in one order, so no score is above 1, and a t2 of 1
/// leaves nothing out.
void wants_of_token(std::span<const float> weights, const MixedOptions& options, std::span<Want> out) {
  MOESTRO_CHECK(out.size() == weights.size(), "a want for each of a token's experts");
  std::ranges::fill(out, Want::kFull);
  double total = 0;
  for (const float weight : weights) {
    if (!std::isfinite(weight) || weight < 0) return;
    total += static_cast<double>(weight);
  }
  if (total <= 0) return;
  for (size_t i = 0; i < weights.size(); ++i) {
    double before = 0;
    for (size_t j = 0; j < weights.size(); ++j)
      if (weights[j] > weights[i] || (weights[j] == weights[i] && j < i)) before += static_cast<double>(weights[j]);
    const double score = before / total;
    out[i] = score <= options.t1 ? Want::kFull : score <= options.t2 ? Want::kLow : Want::kNone;
  }
}

}  // namespace moestro
