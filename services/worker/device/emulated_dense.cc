#include "services/worker/device/emulated_dense.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/sharp_wait.h"

namespace moestro::device {
namespace {

constexpr uint64_t kDenseChunkBytes = uint64_t{1} << 20;  ///< as the tier's: an expert waits no longer for these

}  // namespace

void EmulatedDense::take_ended(std::vector<uint64_t>& ended) {
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void EmulatedDense::abandon(std::unique_lock<std::mutex>& lock) {
  copies_.clear();  // first, or the link would go on with the next chunk
  carried_chunk_.wait(lock, [this] { return !carrying_; });
  ended_.clear();
  offset_ = 0;
}

void EmulatedDense::take_carried(std::vector<Copied>& out) {
  out.insert(out.end(), carried_.begin(), carried_.end());
  carried_.clear();
  open_ = false;
}

bool EmulatedDense::comes_first(std::optional<int32_t> waiting_layer) const {
  return has_more() && copies_.front().number < step_end_ &&
         !(waiting_layer && *waiting_layer < copies_.front().moe_layer);
}

void EmulatedDense::carry_in(std::unique_lock<std::mutex>& lock, Nanos from, Nanos& free_at) {
  const DenseCopy copy = copies_.front();
  const uint64_t offset = offset_, bytes = std::min(kDenseChunkBytes, copy.bytes - offset);
  const Nanos begin = std::max(from, free_at);
  free_at = begin + (offset == 0 ? options_.latency : Nanos(0)) +
            Nanos(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(options_.bytes_per_s)));
  carrying_ = true;
  lock.unlock();
  std::memcpy(copy.to + offset, copy.from + offset, bytes);
  wait_sharply_until(clock_, free_at);
  lock.lock();
  carrying_ = false;
  carried_chunk_.notify_all();
  note(copy, bytes, begin, free_at);
  if (copies_.empty()) return;  // abandoned
  offset_ += bytes;
  if (offset_ < copy.bytes) return;
  offset_ = 0;
  ended_.push_back(copy.number);
  copies_.erase(copies_.begin());
  on_end_();
}

/// A copy that others have interrupted is several.
void EmulatedDense::note(const DenseCopy& copy, uint64_t bytes, Nanos begin, Nanos end) {
  if (!open_ || carried_.back().dense_layer != copy.layer || carried_.back().end != begin)
    carried_.push_back({.demand = true, .begin = begin, .dense_layer = copy.layer});
  open_ = true;
  carried_.back().dense_bytes += bytes;
  carried_.back().end = end;
}

}  // namespace moestro::device
