#pragma once
// Which steps of more tokens than usual are worth it on a worker, from those that it has reported.
//
// Where a worker has no room for all experts, a step brings nearly every one of them, however many tokens it has: then
// steps of twice the tokens take little longer, and prompts are read faster. Elsewhere they take twice as long, gain
// nothing, and keep others waiting. Which it is is measured: a size is tried once the one below has proved itself, and
// kept if its steps last less than the tokens that they have more would take one step of the usual size after another,
// by half, and within a limit. What was measured long ago is measured again.

#include <array>
#include <cstdint>

#include "common/clock.h"

namespace moestro::orchestrator {

class StepGrowth {
 public:
  explicit StepGrowth(int64_t usual) : usual_(usual) {}

  /// A step was computed. Those of fewer than the usual number of tokens say nothing.
  void done(int64_t tokens, Nanos took);
  /// The most tokens of a step that lasts at most `longer` times as long as a usual one: the usual number times a power
  /// of two. Larger ones than have been measured only to try them.
  int64_t tokens(double longer) const;

 private:
  struct Size {
    double tokens = 0, took = 0;  ///< means of recent steps
    uint64_t seen = 0;            ///< last use, in steps of at least the usual number of tokens; 0: never
  };
  bool known(const Size& size) const;

  int64_t usual_;
  std::array<Size, 12> sizes_;  ///< [k]: steps of usual * 2^k tokens or more, up to twice as many
  uint64_t steps_ = 0;
};

}  // namespace moestro::orchestrator
