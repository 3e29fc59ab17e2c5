#pragma once
// Predicts how long a worker's steps take, from those that it has reported.
//
// A step's time is modelled as a function of its tokens, because the number of sequences and their lengths change
// slowly. There is one point for each power of two of tokens, with the mean of recent steps and their mean deviation.
// Between points the model is linear. Beyond the largest point it continues the last line, to at most twice the tokens,
// so larger steps are tried gradually. A point that has not been seen for long is dropped, so that sizes that were slow
// once (because weights had to be read first) are tried again.

#include <array>
#include <cstdint>
#include <map>

#include "common/clock.h"
#include "common/ids.h"

namespace moestro::orchestrator {

class StepTimeModel {
 public:
  void planned(PlanId plan, int64_t tokens);
  /// `took` zero: it was not measured.
  /// Returns the plan's tokens, or 0 if it is not known.
  int64_t done(PlanId plan, Nanos took);
  /// Tokens of a step that is expected to take no longer than `target`; at least 1. 16 without any measurement.
  int64_t tokens_within(Nanos target) const;
  /// The usual time of recent steps; 0: not measured.
  Nanos usual() const { return Nanos(static_cast<int64_t>(usual_)); }

 private:
  struct Point {
    double tokens = 0, took = 0, deviation = 0;
    uint64_t seen = 0;  ///< last use, in steps; 0: never
  };
  void observe(double tokens, double took);
  bool known(const Point& p) const;

  std::array<Point, 24> points_;  ///< [k]: steps of 2^k tokens or more, up to twice as many
  std::map<PlanId, int64_t> under_way_;
  uint64_t steps_ = 0;
  double usual_ = 0;
};

}  // namespace moestro::orchestrator
