#include "services/worker/device/dense_link.h"

namespace moestro::device {

void DenseLink::take_ended(std::vector<uint64_t>& ended) {
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void DenseLink::take_carried(std::vector<Copied>& out) {
  out.insert(out.end(), carried_.begin(), carried_.end());
  carried_.clear();
  open_ = false;
}

bool DenseLink::comes_first(std::optional<int32_t> waiting_layer) const {
  return has_more() && copies_.front().number < step_end_ &&
         !(waiting_layer && *waiting_layer < copies_.front().moe_layer);
}

/// A copy that others have interrupted is several.
void DenseLink::note(int32_t layer, uint64_t bytes, Nanos begin, Nanos end) {
  if (!open_ || carried_.back().dense_layer != layer || carried_.back().end != begin)
    carried_.push_back({.demand = true, .begin = begin, .dense_layer = layer});
  open_ = true;
  carried_.back().dense_bytes += bytes;
  carried_.back().end = end;
}

}  // namespace moestro::device
