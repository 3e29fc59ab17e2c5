#include "common/activation/expert_union.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::activation {

namespace {
constexpr double kLeastSaving = 0.02;  ///< share of the first's experts: forecasts are not exact
constexpr double kEnough = 0.5;        ///< of what can be saved
}  // namespace

void ExpertUnion::add(const ExpertShares& shares) {
  if (absent_.empty()) absent_.assign(shares.size(), 1.0F);
  MOESTRO_CHECK(absent_.size() == shares.size(), "experts of two models are not compared");
  for (size_t cell = 0; cell < shares.size(); ++cell) absent_[cell] *= 1.0F - shares[cell];
}

double ExpertUnion::added_by(const ExpertShares& shares) const {
  MOESTRO_CHECK(absent_.size() == shares.size(), "experts of two models are not compared");
  float sum = 0;
  for (size_t cell = 0; cell < shares.size(); ++cell) sum += absent_[cell] * shares[cell];
  return static_cast<double>(sum);
}

size_t next_by_overlap(const ExpertUnion& running, std::span<const OverlapCandidate> candidates) {
  if (running.empty() || candidates.front().likely == nullptr) return 0;
  const double first = running.added_by(*candidates.front().likely);
  std::vector<double> saved{0};  // experts fewer than the first adds
  for (size_t i = 1; i < candidates.size() && candidates[i - 1].passes_left > 0; ++i)
    saved.push_back(candidates[i].likely == nullptr ? 0 : first - running.added_by(*candidates[i].likely));
  const double most = *std::ranges::max_element(saved);
  if (most <= kLeastSaving * first) return 0;
  const auto enough = [most](double s) { return s >= kEnough * most; };
  return static_cast<size_t>(std::ranges::find_if(saved, enough) - saved.begin());
}

}  // namespace moestro::activation
