#pragma once
// What the drives can bring until a given time, for the budget and the patience of reads ahead. Their rate is measured:
// bytes of reads that have ended, by the time in which anything was being read.

#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "common/tier/link_pace.h"

namespace moestro::store {

class DrivePace {
 public:
  /// `reading`: something was being read since the last call.
  void at(Nanos now, bool reading);
  Nanos now() const { return now_; }
  /// A read has ended, complete or not.
  void carried(uint64_t bytes);
  /// 0: not known yet.
  double bytes_per_s() const { return pace_.bytes_per_s(); }

  /// Whether so many bytes can be there by `due`. True while the rate is unknown.
  bool in_time(double bytes, Nanos due) const;
  /// If this many bytes can wait and still be there in good time before `due`: until when. Nothing waits while the rate
  /// is unknown.
  std::optional<Nanos> may_wait(double bytes, Nanos due) const;

 private:
  Nanos now_{0}, busy_{0};
  tier::LinkPace pace_{0, Nanos{0}};
};

}  // namespace moestro::store
