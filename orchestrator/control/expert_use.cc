#include "orchestrator/control/expert_use.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace moestro::orchestrator {

namespace {
constexpr double kHalfLivesMax = 64;  ///< then weights begin at 1 again: far from where doubles end
constexpr size_t kCellsMax =
    1 << 20;  ///< twenty times those of the largest models; what a peer claims beyond that is not worth its memory
}

void ExpertUse::begin(const activation::EamcShape& shape) {
  const std::lock_guard lock(mutex_);
  if (shape.layers == layers_ && shape.experts == experts_) return;
  const bool drawn = shape.cells() <= kCellsMax;
  layers_ = drawn ? shape.layers : 0, experts_ = drawn ? shape.experts : 0;
  cells_.assign(drawn ? shape.cells() : 0, 0);
}

void ExpertUse::count(std::span<const activation::ActivationCount> counts, Nanos now) {
  if (counts.empty()) return;
  const std::lock_guard lock(mutex_);
  double age = std::chrono::duration<double>(now - since_) / kHalfLife;
  if (age > kHalfLivesMax) {
    for (double& cell : cells_) cell *= std::exp2(-age);
    since_ = now, age = 0;
  }
  const double weight = std::exp2(age);
  for (const activation::ActivationCount& c : counts)
    if (std::cmp_less(c.layer.value, layers_) && std::cmp_less(c.expert.value, experts_))
      cells_[static_cast<size_t>(c.layer.value) * static_cast<size_t>(experts_) +
             static_cast<size_t>(c.expert.value)] += weight * c.tokens;
}

ExpertShares ExpertUse::shares() const {
  const std::lock_guard lock(mutex_);
  ExpertShares shares{layers_, experts_, std::vector<float>(cells_.size())};
  const auto experts = static_cast<size_t>(experts_);
  for (size_t first = 0; first + experts <= cells_.size() && experts > 0; first += experts) {
    const auto row = std::span(cells_).subspan(first, experts);
    const double all = std::accumulate(row.begin(), row.end(), 0.0);
    if (all > 0)
      std::ranges::transform(row, shares.cells.begin() + static_cast<std::ptrdiff_t>(first),
                             [all](double cell) { return static_cast<float>(cell / all); });
  }
  return shares;
}

}  // namespace moestro::orchestrator
