#include "orchestrator/scheduler/step_time_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace moestro::orchestrator {

namespace {
constexpr double kNew = 0.2;           ///< weight of the latest step
constexpr uint64_t kForgotten = 500;   ///< steps
constexpr int64_t kUnknown = 16;       ///< tokens of a first step
constexpr size_t kUnderWayMax = 16;    ///< plans whose result a worker may owe; older ones it has lost
}  // namespace

void StepTimeModel::planned(PlanId plan, int64_t tokens) {
  under_way_[plan] = tokens;
  if (under_way_.size() > kUnderWayMax) under_way_.erase(under_way_.begin());
}

int64_t StepTimeModel::done(PlanId plan, Nanos took) {
  const auto it = under_way_.find(plan);
  if (it == under_way_.end()) return 0;
  const int64_t tokens = it->second;
  under_way_.erase(it);
  if (took > Nanos(0)) observe(static_cast<double>(tokens), static_cast<double>(took.count()));
  return tokens;
}

void StepTimeModel::observe(double tokens, double took) {
  const auto whole = static_cast<uint64_t>(std::max(1.0, tokens));
  Point& p = points_[std::min<size_t>(static_cast<size_t>(std::bit_width(whole)) - 1, points_.size() - 1)];
  if (!known(p)) p = {tokens, took, 0, 0};
  p.deviation += kNew * (std::abs(took - p.took) - p.deviation);
  p.took += kNew * (took - p.took);
  p.tokens += kNew * (tokens - p.tokens);
  usual_ += steps_ == 0 ? took : kNew * (took - usual_);
  p.seen = ++steps_;
}

bool StepTimeModel::known(const Point& p) const { return p.seen > 0 && steps_ - p.seen < kForgotten; }

int64_t StepTimeModel::tokens_within(Nanos target) const {
  const auto limit = static_cast<double>(target.count());
  double tokens = 0, cost = 0, slope = 0;  // of the point before; more tokens never take less time
  bool any = false;
  for (const Point& p : points_) {
    if (!known(p)) continue;
    const double here = std::max(cost, p.took + p.deviation);
    if (here > limit) {
      if (!any) return std::max<int64_t>(1, static_cast<int64_t>(p.tokens * limit / here));
      return std::max<int64_t>(1, static_cast<int64_t>(tokens + (p.tokens - tokens) * (limit - cost) / (here - cost)));
    }
    slope = (here - cost) / (p.tokens - tokens);
    tokens = p.tokens;
    cost = here;
    any = true;
  }
  if (!any) return kUnknown;
  const double more = slope > 0 ? (limit - cost) / slope : tokens;
  return static_cast<int64_t>(tokens + std::min(more, std::max(tokens, 1.0)));
}

}  // namespace moestro::orchestrator
