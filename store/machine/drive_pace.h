#pragma once
// What the drives can bring until a given time, for the budget and the patience of reads ahead, and how long they read
// nothing that workers wait for, for the floor. Their rate is measured: bytes of reads that have ended, by the time in
// which anything was being read.

#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "common/tier/link_pace.h"

namespace moestro::store {

class DrivePace {
 public:
  /// `reading`: something was being read since the last call; `demanded`: a worker waited for it.
  void at(Nanos now, bool reading, bool demanded);
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

  /// The probability from which reading ahead saves more than it costs, if a demand waits for up to `read_bytes` of it;
  /// 0 while that is unknown. So much takes c, and demands come after pauses of g on average. What is read in a pause
  /// and used saves g and what the demand waited for, which is lost otherwise: c / (g + c) where it is all of c. It is
  /// half on average, but the room was taken from what might have been used too.
  double break_even(double read_bytes) const;

 private:
  Nanos now_{0}, busy_{0}, pause_{0};
  tier::LinkPace pace_{0, Nanos{0}};
  double pause_mean_s_ = 0;
};

}  // namespace moestro::store
