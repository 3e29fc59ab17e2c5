#include "orchestrator/scheduler/step_growth.h"

#include <algorithm>
#include <bit>

namespace moestro::orchestrator {

namespace {
constexpr uint64_t kAgainMost = 1000, kUsualAgainMost = 64;  ///< steps
constexpr double kCostOfMore = 0.5;  ///< that a further token may take of what one of a usual step takes
}  // namespace

void StepGrowth::done(int64_t tokens, Nanos took) {
  if (usual_ <= 0 || tokens < usual_ || took <= Nanos(0)) return;
  const auto times = static_cast<uint64_t>(tokens / usual_);
  const size_t k = std::min<size_t>(static_cast<size_t>(std::bit_width(times)) - 1, sizes_.size() - 1);
  Size& size = sizes_[k];
  if (size.seen_twice() && long_ago(size)) size.again = std::min(2 * size.again, k == 0 ? kUsualAgainMost : kAgainMost);
  else size.again = std::max(size.again - 1, kAgainFirst);  // a size in use that fails is soon tried again
  size.before = size.latest;
  size.latest = {static_cast<double>(tokens), static_cast<double>(took.count())};
  size.seen = ++steps_;
}

bool StepGrowth::worth_it(const Size& size, double longer) const {
  const Step &step = size.shorter(), &usual = sizes_.front().shorter();
  const double gains = 1 + kCostOfMore * (step.tokens / usual.tokens - 1);
  return step.took > 0 && step.took <= std::min(longer, gains) * usual.took;
}

int64_t StepGrowth::tokens(double longer) const {
  int64_t tokens = usual_;
  if (to_measure(sizes_.front())) return tokens;
  for (auto size = sizes_.begin() + 1; size != sizes_.end(); ++size) {
    if (!worth_it(*size, longer)) return to_measure(*size) ? 2 * tokens : tokens;
    tokens *= 2;
  }
  return tokens;
}

}  // namespace moestro::orchestrator
