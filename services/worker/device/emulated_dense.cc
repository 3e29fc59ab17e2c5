#include "services/worker/device/emulated_dense.h"

#include <algorithm>
#include <cstring>

#include "common/sharp_wait.h"

namespace moestro::device {
namespace {

constexpr uint64_t kDenseChunkBytes = uint64_t{1} << 20;  ///< as the tier's: an expert waits no longer for these

}  // namespace

void EmulatedDense::abandon(std::unique_lock<std::mutex>& lock) {
  copies_.clear();  // first, or the link would go on with the next chunk
  carried_chunk_.wait(lock, [this] { return !carrying_; });
  ended_.clear();
  offset_ = 0;
}

void EmulatedDense::carry_in(std::unique_lock<std::mutex>& lock, Nanos from, Nanos& free_at) {
  const DenseCopy copy = copies_.front();
  const uint64_t offset = offset_, bytes = std::min(kDenseChunkBytes, copy.bytes - offset);
  const Nanos begin = std::max(from, free_at);
  free_at = begin + (offset == 0 ? options_.latency : Nanos(0)) +
            Nanos(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(options_.bytes_per_s)));
  carrying_ = true;
  lock.unlock();
  if (offset == 0) std::memset(copy.to, 0xff, copy.poison_bytes);
  std::memcpy(copy.to + offset, copy.from + offset, bytes);
  wait_sharply_until(clock_, free_at);
  lock.lock();
  carrying_ = false;
  carried_chunk_.notify_all();
  note(copy.layer, bytes, begin, free_at);
  if (copies_.empty()) return;  // abandoned
  offset_ += bytes;
  if (offset_ < copy.bytes) return;
  offset_ = 0;
  ended_.push_back(copy.number);
  copies_.erase(copies_.begin());
  on_end_();
}

}  // namespace moestro::device
