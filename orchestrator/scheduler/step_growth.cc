#include "orchestrator/scheduler/step_growth.h"

#include <algorithm>
#include <bit>

namespace moestro::orchestrator {

namespace {
constexpr double kLatestStep = 0.2;     ///< weight of the latest step
constexpr uint64_t kTriedAgain = 1000;  ///< steps
constexpr double kCostOfMore = 0.5;     ///< that a further token may take of what one of a usual step takes
}  // namespace

bool StepGrowth::known(const Size& size) const {
  return size.seen > 0 && steps_ - size.seen < kTriedAgain;
}

void StepGrowth::done(int64_t tokens, Nanos took) {
  if (usual_ <= 0 || tokens < usual_ || took <= Nanos(0)) return;
  const auto times = static_cast<uint64_t>(tokens / usual_);
  Size& size = sizes_[std::min<size_t>(static_cast<size_t>(std::bit_width(times)) - 1, sizes_.size() - 1)];
  const auto all = static_cast<double>(tokens), ns = static_cast<double>(took.count());
  if (!known(size)) size = {all, ns, 0};
  size.tokens += kLatestStep * (all - size.tokens), size.took += kLatestStep * (ns - size.took);
  size.seen = ++steps_;
}

int64_t StepGrowth::tokens(double longer) const {
  const Size& usual = sizes_.front();
  int64_t tokens = usual_;
  if (!known(usual)) return tokens;
  for (auto size = sizes_.begin() + 1; size != sizes_.end(); ++size) {
    if (!known(*size)) return 2 * tokens;
    const double more = kCostOfMore * (size->tokens / usual.tokens - 1);
    if (size->took > std::min(longer, 1 + more) * usual.took) return tokens;
    tokens *= 2;
  }
  return tokens;
}

}  // namespace moestro::orchestrator
