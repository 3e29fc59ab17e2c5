#include "common/tier/serving_plan.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::tier {
namespace {

/// What a way asks of the link.
Nanos copy_of(const MissingExpert& m, Way way) {
  return way == Way::kFull ? m.full : way == Way::kLow ? *m.low : Nanos{0};
}

/// The way that is allowed and asks least of the link. A full copy of which no more is missing than of a low one is as
/// good as there.
Way least_copying(const MissingExpert& m) {
  if (m.want == Want::kLow && (!m.low || m.full <= *m.low)) return Way::kFull;
  const auto copy = serving_copy(m.want, false, m.low == Nanos{0});
  return !copy ? Way::kSkip : *copy == Copy::kFull ? Way::kFull : Way::kLow;
}

}  // namespace

Nanos ServingPlan::end(std::span<const MissingExpert> missing, const LayerLoad& load, std::span<const Way> ways) {
  Nanos device = load.present, cpu{0};
  copies_.clear();
  for (size_t i = 0; i < missing.size(); ++i) {
    if (ways[i] == Way::kCpu) cpu += *missing[i].cpu;
    else if (const Nanos copy = copy_of(missing[i], ways[i]); copy == Nanos{0}) device += load.expert;
    else copies_.push_back(copy);
  }
  std::ranges::sort(copies_);  // the link brings first what lacks least
  Nanos link = load.link;
  for (const Nanos copy : copies_) {
    link += copy;
    device = std::max(device, link) + load.expert;
  }
  return cpu == Nanos{0} ? device : std::max(device, load.cpu + cpu);
}

std::span<const Way> ServingPlan::choose(std::span<const MissingExpert> missing, const LayerLoad& load) {
  begin_with_least_copying(missing);
  move_to_cpu(missing, load);
  improve(missing, load);
  return ways_;
}

void ServingPlan::begin_with_least_copying(std::span<const MissingExpert> missing) {
  ways_.clear();
  for (const MissingExpert& m : missing) ways_.push_back(least_copying(m));
}

/// Fiddler (Kamahori et al. 2024) and HOBBIT's cooperative mode: first go those whose copies take longest, compared
/// with their time on the CPU, so many that the layer ends the soonest.
void ServingPlan::move_to_cpu(std::span<const MissingExpert> missing, const LayerLoad& load) {
  order_.clear();
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i].cpu && copy_of(missing[i], ways_[i]) > Nanos{0}) order_.push_back(i);
  if (order_.empty()) return;
  const auto ns = [](Nanos t) { return static_cast<double>(t.count()); };
  std::ranges::sort(order_, [&](size_t a, size_t b) {
    const double of_a = ns(*missing[a].cpu) * ns(copy_of(missing[b], ways_[b]));
    const double of_b = ns(*missing[b].cpu) * ns(copy_of(missing[a], ways_[a]));
    return of_a != of_b ? of_a < of_b : a < b;
  });
  Nanos soonest = end(missing, load, ways_);
  size_t moved = 0;
  tried_ = ways_;
  for (size_t n = 1; n <= order_.size(); ++n) {
    tried_[order_[n - 1]] = Way::kCpu;
    if (const Nanos then = end(missing, load, tried_); then < soonest) soonest = then, moved = n;
  }
  for (size_t n = 0; n < moved; ++n) ways_[order_[n]] = Way::kCpu;
}

/// The last copy arrives when the link has carried all of them, and is computed then: a quick look before end().
bool ServingPlan::link_has_time_for(std::span<const MissingExpert> missing, const LayerLoad& load, size_t expert,
                                    Nanos until) {
  Nanos carried = load.link + missing[expert].full - copy_of(missing[expert], ways_[expert]);
  for (size_t i = 0; i < missing.size(); ++i) carried += copy_of(missing[i], ways_[i]);
  return carried + load.expert <= until;
}

/// Gives experts better ways with which the layer ends no later, until there are none; those that matter more come
/// first. One that goes to the CPU leaves the link to others.
void ServingPlan::improve(std::span<const MissingExpert> missing, const LayerLoad& load) {
  const Nanos until = end(missing, load, ways_);
  for (bool improved = true; improved;) {
    improved = false;
    for (const Want want : {Want::kLow, Want::kNone})
      for (size_t i = 0; i < missing.size(); ++i)
        if (missing[i].want == want) improved = improve_one(missing, load, i, until) || improved;
  }
}

bool ServingPlan::improve_one(std::span<const MissingExpert> missing, const LayerLoad& load, size_t expert,
                              Nanos until) {
  const Way now = ways_[expert];
  if (now == Way::kFull || now == Way::kCpu) return false;
  const auto fits = [&](Way way) {
    ways_[expert] = way;
    return end(missing, load, ways_) <= until;
  };
  if (link_has_time_for(missing, load, expert, until) && fits(Way::kFull)) return true;
  if (missing[expert].cpu && fits(Way::kCpu)) return true;
  if (now == Way::kSkip && missing[expert].low && fits(Way::kLow)) return true;
  ways_[expert] = now;
  return false;
}

}  // namespace moestro::tier
