#pragma once
// How long a worker's steps take, learned from those it has reported.
//
// A step's time is taken as a function of its tokens: how many sequences they are of, and how far those are, changes
// slowly against it. One point for each power of two of tokens holds the mean of recent steps and their mean deviation;
// between points it is a line, and beyond the largest one so far it goes on as between the last two, to twice its
// tokens at most: so what was never tried is come to in steps. A point that has not been seen for long is forgotten, so
// that what was slow once (weights that had to be read first) is tried again.

#include <array>
#include <cstdint>
#include <map>

#include "common/clock.h"
#include "common/ids.h"

namespace moestro::orchestrator {

class StepTimeModel {
 public:
  void planned(PlanId plan, int64_t tokens);
  /// `took` zero: nobody measured it.
  void done(PlanId plan, Nanos took);
  /// Tokens of a step that is expected to take no longer than `target`; at least 1. Without any measurement 16.
  int64_t tokens_within(Nanos target) const;
  /// Of the latest steps; 0: not measured.
  Nanos usual() const { return Nanos(static_cast<int64_t>(usual_)); }

 private:
  struct Point {
    double tokens = 0, took = 0, deviation = 0;
    uint64_t seen = 0;  ///< when last, in steps; 0: never
  };
  void observe(double tokens, double took);
  bool known(const Point& p) const;

  std::array<Point, 24> points_;  ///< [k]: steps of 2^k tokens or more, up to twice as many
  std::map<PlanId, int64_t> under_way_;
  uint64_t steps_ = 0;
  double usual_ = 0;
};

}  // namespace moestro::orchestrator
