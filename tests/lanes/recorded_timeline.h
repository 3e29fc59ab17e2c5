#pragma once

#include <vector>

#include "common/lanes/timeline.h"

namespace moestro::lanes {

/// Keeps everything in memory.
class RecordedTimeline final : public Timeline {
 public:
  void slice(const Slice& slice) override { slices_.push_back(slice); }
  void transfer(const Transfer& transfer) override { transfers_.push_back(transfer); }
  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<Stall>& stalls() const { return stalls_; }

 private:
  void draw(const Stall& stall) override { stalls_.push_back(stall); }
  std::vector<Slice> slices_;
  std::vector<Transfer> transfers_;
  std::vector<Stall> stalls_;
};

}  // namespace moestro::lanes
