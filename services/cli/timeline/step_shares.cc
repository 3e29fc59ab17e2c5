#include "services/cli/timeline/step_shares.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moestro::cli {
namespace {

constexpr size_t kRecentSteps = 16;
constexpr size_t kLanesMax = 64, kStepSlicesMax = size_t{1} << 20;

bool makes_steps(std::string_view lane) { return lane == "compute" || lane == "stall"; }

}  // namespace

void StepShares::name_lane(int64_t track, std::string name) {
  if (lanes_.size() < kLanesMax || lanes_.contains(track)) lanes_[track].name = std::move(name);
}

std::string_view StepShares::lane_name(int64_t track) const {
  const auto lane = lanes_.find(track);
  return lane == lanes_.end() ? std::string_view() : lane->second.name;
}

Status StepShares::add(int64_t track, uint64_t plan, Nanos begin, Nanos end) {
  const auto lane = lanes_.find(track);
  if (lane == lanes_.end())
    return invalid_argument("a slice of track " + std::to_string(track) + ", which has no name");
  lane->second.seen = true;
  if (makes_steps(lane->second.name)) {
    if (recent_.empty() || recent_.back().plan != plan) {
      if (recent_.size() == kRecentSteps) {
        count(recent_.front());
        recent_.pop_front();
      }
      recent_.push_back({.plan = plan, .begin = begin, .end = end, .slices = {}});
    }
    recent_.back().begin = std::min(recent_.back().begin, begin);
    recent_.back().end = std::max(recent_.back().end, end);
  }
  // The last step may yet become longer.
  for (Step& step : recent_) {
    if (&step != &recent_.back() && (end <= step.begin || begin >= step.end)) continue;
    if (++step.count > kStepSlicesMax)
      return invalid_argument("plan " + std::to_string(step.plan) + " has more slices than any step");
    step.slices[track].push_back({begin, end});
  }
  return Status::ok();
}

void StepShares::count(Step& step) {
  step_times_.push_back(step.end - step.begin);
  in_steps_ += step.end - step.begin;
  for (auto& [track, lane] : lanes_) {
    auto& slices = step.slices[track];
    std::ranges::sort(slices, {}, &Interval::begin);
    Nanos at = step.begin;
    const auto idle_until = [&](Nanos end) {
      if (end - at < kBubble) return;
      ++lane.bubbles;
      lane.bubbles_time += end - at;
      lane.longest_bubble = std::max(lane.longest_bubble, end - at);
    };
    for (const Interval& slice : slices) {
      const Nanos begin = std::max(slice.begin, at), end = std::min(slice.end, step.end);
      if (end <= begin) continue;
      idle_until(begin);
      lane.busy += end - begin;
      at = end;
    }
    idle_until(step.end);
  }
}

void StepShares::finish() {
  for (Step& step : recent_) count(step);
  recent_.clear();
  std::ranges::sort(step_times_);
}

Nanos StepShares::step_time(double share) const {
  if (step_times_.empty()) return Nanos(0);
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(step_times_.size())));
  return step_times_[std::clamp<size_t>(rank, 1, step_times_.size()) - 1];
}

}  // namespace moestro::cli
