#pragma once
// A drive of a given speed whose files lie in memory, on a clock that the test turns: reads are served one after
// another, in order.

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "store/reader/reader.h"

namespace moestro::store {

/// Microseconds of a clock that all drives of a test share.
struct TurnedClock {
  double now_us = 0;
};

class ThrottledReader final : public Reader {
 public:
  ThrottledReader(const std::vector<std::string>& files, double bytes_per_us, const TurnedClock& clock)
      : files_(files), bytes_per_us_(bytes_per_us), clock_(clock) {}

  bool submit(const ReadOp& op) override {
    idle_at_us_ = std::max(idle_at_us_, clock_.now_us) + op.length / bytes_per_us_;
    under_way_.push_back({op, idle_at_us_});
    return true;
  }
  void reap(std::vector<ReadResult>& results) override {
    for (; !under_way_.empty() && under_way_.front().done_at_us <= clock_.now_us; under_way_.pop_front()) {
      const ReadOp& op = under_way_.front().op;
      const std::string& file = files_[op.file];
      const size_t n = std::min<size_t>(op.length, file.size() - std::min<size_t>(op.offset, file.size()));
      std::memcpy(op.into, file.data() + op.offset, n);
      results.push_back({op.tag, static_cast<int64_t>(n)});
    }
  }
  /// When its next read is done; none if nothing is under way.
  double next_us(double otherwise) const { return under_way_.empty() ? otherwise : under_way_.front().done_at_us; }
  int event_fd() const override { return -1; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(under_way_.size()); }
  std::string_view name() const override { return "throttled"; }
  Status set_files(uint32_t, std::span<const int>) override { return Status::ok(); }

 private:
  struct Flight {
    ReadOp op;
    double done_at_us;
  };
  const std::vector<std::string>& files_;
  const double bytes_per_us_;
  const TurnedClock& clock_;
  double idle_at_us_ = 0;
  std::deque<Flight> under_way_;
};

}  // namespace moestro::store
