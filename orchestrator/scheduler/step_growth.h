#pragma once
// Which steps of more tokens than usual are worth it on a worker, from those that it has reported.
//
// Where a worker has no room for all experts, a step brings nearly every one of them, however many tokens it has: then
// steps of twice the tokens take little longer, and prompts are read faster. Elsewhere they take twice as long, gain
// nothing, and keep others waiting. Which it is is measured. A size is tried once the one below has proved itself. It
// is kept while its additional tokens cost at most half of what as many cost in usual steps, and while its steps last
// no longer than the limit.
//
// One slow step decides nothing: of a size's last two steps the shorter one counts. Usual steps are measured again
// while larger ones are taken, because all are compared with them: the first steps of a worker may be slow, as nothing
// has been read yet. A size that has failed is tried again, and less often each time.

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
  static constexpr uint64_t kAgainFirst = 8;  ///< steps

  struct Step {
    double tokens = 0, took = 0;  ///< ns; 0: there was none
  };
  struct Size {
    Step latest, before;
    uint64_t seen = 0;             ///< the latest step's number, of those of at least the usual number of tokens
    uint64_t again = kAgainFirst;  ///< steps after `seen` until it is measured again

    bool seen_twice() const { return before.took > 0; }
    const Step& shorter() const { return seen_twice() && before.took < latest.took ? before : latest; }
  };
  bool long_ago(const Size& size) const { return steps_ - size.seen >= size.again; }
  bool to_measure(const Size& size) const { return !size.seen_twice() || long_ago(size); }
  bool worth_it(const Size& size, double longer) const;

  int64_t usual_;
  std::array<Size, 12> sizes_;  ///< [k]: steps of usual * 2^k tokens or more, up to twice as many
  uint64_t steps_ = 0;
};

}  // namespace moestro::orchestrator
