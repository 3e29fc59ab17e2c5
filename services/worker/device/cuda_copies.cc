#include "services/worker/device/cuda_copies.h"

#include <cstring>
#include <string>

namespace moestro::device {

Status CudaCopies::make(uint64_t copy_bytes_max, const char* what_for) {
  const MoestroCudaFunctions& cuda = *device_.functions;
  const auto made = [&](const char* what, MoestroCudaResult result) {
    return result == 0 ? Status::ok() : exhausted(words_of(device_, what, result) + ", " + what_for);
  };
  MOESTRO_RETURN_IF_ERROR(made("make_stream", cuda.make_stream(0, &stream_)));
  for (Flight& flight : flights_) {
    MOESTRO_RETURN_IF_ERROR(made("make_event", cuda.make_event(MOESTRO_CUDA_EVENT_TIMED, &flight.begin)));
    MOESTRO_RETURN_IF_ERROR(
        made("make_event", cuda.make_event(MOESTRO_CUDA_EVENT_TIMED | MOESTRO_CUDA_EVENT_SLEEPING, &flight.end)));
  }
  for (void*& staging : staging_)
    MOESTRO_RETURN_IF_ERROR(made("allocate_pinned", cuda.allocate_pinned(copy_bytes_max, &staging)));
  return Status::ok();
}

CudaCopies::~CudaCopies() {
  const MoestroCudaFunctions& cuda = *device_.functions;
  for (const Flight& flight : flights_) {
    if (flight.begin != nullptr) (void)cuda.end_event(flight.begin);
    if (flight.end != nullptr) (void)cuda.end_event(flight.end);
  }
  for (void* staging : staging_)
    if (staging != nullptr) (void)cuda.release_pinned(staging);
  if (stream_ != nullptr) (void)cuda.end_stream(stream_);
}

Status CudaCopies::send(std::unique_lock<std::mutex>& lock, const Copy& copy) {
  Flight& flight = flights_[sent_ % kFlights];
  void* const staging = staging_[sent_ % kUnderWay];
  // Each event costs the copy engine some microseconds: there is none where copies follow one another at once.
  const bool follows = under_way() > 0 && copy.readers == nullptr && copy.poison_bytes == 0;
  flight.since = follows ? flights_[(sent_ - 1) % kFlights].end : flight.begin;
  ++sent_;
  lock.unlock();
  const Status queued = queue(flight, copy, staging);
  lock.lock();
  if (queued.is_ok()) ++queued_;
  return queued;
}

Status CudaCopies::queue(const Flight& flight, const Copy& copy, void* staging) {
  const MoestroCudaFunctions& cuda = *device_.functions;
  if (copy.readers != nullptr)
    MOESTRO_RETURN_IF_ERROR(call("stream_waits", cuda.stream_waits(stream_, copy.readers)));
  if (copy.poison_bytes > 0)
    MOESTRO_RETURN_IF_ERROR(call("fill", cuda.fill(copy.poison, 0xff, copy.poison_bytes, stream_)));
  if (flight.since == flight.begin)
    MOESTRO_RETURN_IF_ERROR(call("record_event", cuda.record_event(flight.begin, stream_)));
  MOESTRO_RETURN_IF_ERROR(queue_parts(copy, staging));
  return call("record_event", cuda.record_event(flight.end, stream_));
}

Status CudaCopies::queue_parts(const Copy& copy, void* staging) {
  std::byte* to = copy.to;
  const std::byte* from = copy.from;
  for (uint64_t left = copy.bytes; left > 0;) {
    const auto part = arena_.part(from, left);
    if (!part.registered) {  // all the rest
      std::memcpy(staging, from, part.bytes);
      staged_bytes_.fetch_add(part.bytes, std::memory_order_relaxed);
    }
    MOESTRO_RETURN_IF_ERROR(
        call("copy_in", device_.functions->copy_in(to, part.registered ? from : staging, part.bytes, stream_)));
    from += part.bytes, to += part.bytes, left -= part.bytes;
  }
  return Status::ok();
}

Result<std::optional<Nanos>> CudaCopies::look(std::unique_lock<std::mutex>& lock, bool waits) {
  const Flight& flight = flights_[ended_ % kFlights];
  const MoestroCudaFunctions& cuda = *device_.functions;
  lock.unlock();
  const char* name = "query_event";
  MoestroCudaResult result = cuda.query_event(flight.end);
  if (result == MOESTRO_CUDA_NOT_READY && waits) name = "wait_event", result = cuda.wait_event(flight.end);
  float ms = 0;
  Status status;
  if (result == 0) status = call("elapsed", cuda.elapsed(&ms, flight.since, flight.end));
  else if (result != MOESTRO_CUDA_NOT_READY || waits) status = call(name, result);
  lock.lock();
  if (!status.is_ok()) return status;
  if (result != 0) return std::optional<Nanos>();
  ++ended_;
  return std::optional(Nanos(static_cast<int64_t>(static_cast<double>(ms) * 1e6)));
}

}  // namespace moestro::device
