#include "services/worker/device/cuda_dense.h"

#include <algorithm>
#include <utility>

namespace moestro::device {

Status CudaDense::make(uint64_t layer_bytes) {
  chunk_bytes_ = device_.dense_chunk();
  return flights_.make(std::min(chunk_bytes_, layer_bytes), "for the copies of dense weights");
}

Result<bool> CudaDense::kernels_may_follow(uint64_t number) {
  for (uint64_t copy = flights_.ended(); copy < flights_.sent(); ++copy) {
    if (part(copy).number != number || !part(copy).last) continue;
    const MoestroCudaEvent end = flights_.end_of(copy);
    if (end == nullptr) return false;
    MOESTRO_RETURN_IF_ERROR(
        fell_off(device_, "stream_waits", device_.functions->stream_waits(device_.compute, end)));
    return true;
  }
  return false;
}

void CudaDense::abandon(std::unique_lock<std::mutex>& lock) {
  copies_.clear();  // first, or the link would go on with the next chunk
  offset_ = 0;
  landed_.wait(lock, [this] { return finished_ || flights_.under_way() == 0; });
  ended_.clear();
}

bool CudaDense::is_reached(MoestroCudaEvent readers) const {
  return readers == nullptr || device_.functions->query_event(readers) != MOESTRO_CUDA_NOT_READY;
}

bool CudaDense::waits_for_kernels() {
  if (flights_.under_way() > 0) {
    Part& oldest = part(flights_.ended());
    if (is_reached(oldest.readers)) oldest.readers = nullptr;
    return oldest.readers != nullptr;
  }
  return has_more() && offset_ == 0 && !is_reached(launches_.event_of(copies_.front().after));
}

Status CudaDense::send(std::unique_lock<std::mutex>& lock) {
  const DenseCopy copy = copies_.front();
  const uint64_t offset = offset_, bytes = std::min(chunk_bytes_, copy.bytes - offset);
  const bool first = offset == 0, last = offset + bytes == copy.bytes;
  const MoestroCudaEvent readers = first ? launches_.event_of(copy.after) : nullptr;
  part(flights_.sent()) = {copy.number, bytes, copy.layer, last, readers};
  // Before the lock is released: what is abandoned meanwhile is gone.
  offset_ = last ? 0 : offset + bytes;
  if (last) copies_.erase(copies_.begin());
  const Status queued = flights_.send(lock, {.to = copy.to + offset,
                                             .from = copy.from + offset,
                                             .bytes = bytes,
                                             .readers = readers,
                                             .poison = copy.to,
                                             .poison_bytes = first ? copy.poison_bytes : 0});
  if (last) on_end_();
  return queued;
}

Result<bool> CudaDense::look(std::unique_lock<std::mutex>& lock) {
  MOESTRO_ASSIGN_OR_RETURN(const std::optional<Nanos> took, flights_.look(lock, false));
  if (!took) return false;
  const Part arrived = part(flights_.ended() - 1);
  const Nanos now = clock_.now();
  // Chunks follow one another on the stream; they are only noticed a little late.
  const Nanos begin = std::max(now - *took, std::exchange(last_arrival_, now));
  note(arrived.layer, arrived.bytes, begin, now);
  if (arrived.last) ended_.push_back(arrived.number);
  landed_.notify_all();
  on_end_();
  return true;
}

void CudaDense::finish(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  flights_.finish();
  lock.lock();
  finished_ = true;
  landed_.notify_all();
}

}  // namespace moestro::device
