#include "services/worker/device/cuda_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace moestro::device {
namespace {

/// Between two looks at a chunk that is in flight alone.
constexpr Nanos kLook = std::chrono::microseconds(20);

}  // namespace

Result<std::unique_ptr<CudaLink>> CudaLink::create(tier::DeviceTier& tier, const SlotMemory& slots,
                                                   const ArenaRegistration& arena, const CudaSlots& device,
                                                   const Options& options, const Clock& clock) {
  std::unique_ptr<CudaLink> link(new CudaLink(tier, slots, arena, device, options, clock));
  MOESTRO_RETURN_IF_ERROR(link->make());
  link->thread_ = std::thread([made = link.get()] { made->run(); });
  return link;
}

CudaLink::CudaLink(tier::DeviceTier& tier, const SlotMemory& slots, const ArenaRegistration& arena,
                   const CudaSlots& device, const Options& options, const Clock& clock)
    : ExpertLink(tier, clock, options.keys),
      cuda_(*device.functions),
      slots_(slots),
      arena_(arena),
      device_(device),
      options_(options),
      launch_of_(options.slots) {}

Status CudaLink::make() {
  const auto made = [this](const char* what, MoestroCudaResult result) {
    return result == 0 ? Status::ok() : exhausted(words_of(device_, what, result) + ", for the copies of experts");
  };
  MOESTRO_RETURN_IF_ERROR(made("make_stream", cuda_.make_stream(0, &stream_)));
  for (MoestroCudaEvent& event : launch_events_)
    MOESTRO_RETURN_IF_ERROR(made("make_event", cuda_.make_event(0, &event)));
  for (Flight& flight : flights_) {
    MOESTRO_RETURN_IF_ERROR(made("make_event", cuda_.make_event(MOESTRO_CUDA_EVENT_TIMED, &flight.begin)));
    MOESTRO_RETURN_IF_ERROR(
        made("make_event", cuda_.make_event(MOESTRO_CUDA_EVENT_TIMED | MOESTRO_CUDA_EVENT_SLEEPING, &flight.end)));
  }
  const uint64_t bytes = std::min(device_.chunk(slots_.slot_bytes()), slots_.slot_bytes());
  for (void*& staging : staging_)
    MOESTRO_RETURN_IF_ERROR(made("allocate_pinned", cuda_.allocate_pinned(bytes, &staging)));
  return Status::ok();
}

CudaLink::~CudaLink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (const Flight& flight : flights_) {
    if (flight.begin != nullptr) (void)cuda_.end_event(flight.begin);
    if (flight.end != nullptr) (void)cuda_.end_event(flight.end);
  }
  for (void* staging : staging_)
    if (staging != nullptr) (void)cuda_.release_pinned(staging);
  for (const MoestroCudaEvent event : launch_events_)
    if (event != nullptr) (void)cuda_.end_event(event);
  if (stream_ != nullptr) (void)cuda_.end_stream(stream_);
}

bool CudaLink::is_copying(tier::Key key) const {
  for (size_t i = 0; i < under_way_; ++i)
    if (flights_[(oldest_ + i) % kFlights].chunk.key == key) return true;
  return false;
}

void CudaLink::wake() {
  woken_ = true;
  work_.notify_one();
}

Status CudaLink::launched() {
  // The link's thread may be about to wait for this event's former launch: it then waits for this one, behind it on the
  // same stream.
  const Status recorded =
      call("record_event", cuda_.record_event(launch_events_[(launches_ + 1) % kLaunches], device_.compute));
  const std::lock_guard lock(mutex_);
  if (recorded.is_ok()) ++launches_;
  else fail(recorded);
  return failure();
}

MoestroCudaEvent CudaLink::readers_of(tier::Slot slot) const {
  const uint64_t launch = launch_of_[slot];
  if (launch == 0) return nullptr;
  const uint64_t oldest = launches_ < kLaunches ? 1 : launches_ - kLaunches + 1;
  return launch_events_[std::max(launch, oldest) % kLaunches];
}

// --- its thread ---

void CudaLink::run() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: chunks last tens of microseconds, as does the kernel's slack
  std::unique_lock lock(mutex_);
  if (const Status used = call("use_device", cuda_.use_device(static_cast<int32_t>(device_.index))); !used.is_ok())
    fail(used);
  while (!stop_ && failure().is_ok()) {
    woken_ = false;
    const auto chunk = under_way_ < kUnderWay ? tier_.next_chunk(clock_.now()) : std::nullopt;
    if (chunk) send(lock, *chunk);
    else if (under_way_ > 0) look_at_oldest(lock);
    else work_.wait(lock);
  }
  lock.unlock();
  (void)cuda_.wait_stream(
      stream_);  // what is under way reads leases and writes slots; a device that fell off does neither
}

void CudaLink::send(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk) {
  Flight& flight = flights_[(oldest_ + under_way_) % kFlights];
  flight.chunk = chunk;
  flight.staging = staging_[sent_++ % kUnderWay];
  const std::byte* source = sources_[chunk.key].data + chunk.offset;
  const MoestroCudaEvent readers = chunk.offset == 0 ? readers_of(chunk.slot) : nullptr;
  // Each event costs the copy engine some microseconds: there is none where copies follow one another at once.
  const bool follows = under_way_ > 0 && readers == nullptr && !(options_.poison_slots && chunk.offset == 0);
  flight.since = follows ? flights_[(oldest_ + under_way_ - 1) % kFlights].end : flight.begin;
  ++under_way_;
  lock.unlock();
  const Status queued = queue(flight, source, readers);
  lock.lock();
  if (!queued.is_ok()) fail(queued);
}

Status CudaLink::queue(const Flight& flight, const std::byte* source, MoestroCudaEvent readers) {
  const tier::Chunk& chunk = flight.chunk;
  if (readers != nullptr) MOESTRO_RETURN_IF_ERROR(call("stream_waits", cuda_.stream_waits(stream_, readers)));
  if (options_.poison_slots && chunk.offset == 0)
    MOESTRO_RETURN_IF_ERROR(call("fill", cuda_.fill(slots_.slot(chunk.slot), 0xff, slots_.slot_bytes(), stream_)));
  if (flight.since == flight.begin)
    MOESTRO_RETURN_IF_ERROR(call("record_event", cuda_.record_event(flight.begin, stream_)));
  MOESTRO_RETURN_IF_ERROR(queue_copies(flight, source));
  return call("record_event", cuda_.record_event(flight.end, stream_));
}

Status CudaLink::queue_copies(const Flight& flight, const std::byte* source) {
  std::byte* to = slots_.slot(flight.chunk.slot) + flight.chunk.offset;
  for (uint64_t left = flight.chunk.bytes; left > 0;) {
    const auto part = arena_.part(source, left);
    if (!part.registered) {  // all the rest of the chunk
      std::memcpy(flight.staging, source, part.bytes);
      staged_bytes_.fetch_add(part.bytes, std::memory_order_relaxed);
    }
    MOESTRO_RETURN_IF_ERROR(
        call("copy_in", cuda_.copy_in(to, part.registered ? source : flight.staging, part.bytes, stream_)));
    source += part.bytes, to += part.bytes, left -= part.bytes;
  }
  return Status::ok();
}

/// Until the oldest chunk has arrived, or there may be something to queue behind it: then this thread is woken. It does
/// not ask the tier before, which would lock out the engine.
void CudaLink::look_at_oldest(std::unique_lock<std::mutex>& lock) {
  const Flight& flight = flights_[oldest_];
  const bool room = under_way_ < kUnderWay;
  while (true) {
    lock.unlock();
    const char* name = "query_event";
    MoestroCudaResult result = cuda_.query_event(flight.end);
    // Without room there is nothing else to do, and the chunk behind it keeps the copy engine busy until this thread
    // has been woken. With room, something may have to be queued behind the one in flight before that has arrived.
    if (result == MOESTRO_CUDA_NOT_READY && !room) name = "wait_event", result = cuda_.wait_event(flight.end);
    float ms = 0;
    Status status;
    if (result == 0) status = call("elapsed", cuda_.elapsed(&ms, flight.since, flight.end));
    else if (result != MOESTRO_CUDA_NOT_READY || !room) status = call(name, result);
    lock.lock();
    if (!status.is_ok()) return fail(status);
    if (result == 0) return arrived(flight, ms);
    if (!stop_ && !woken_) work_.wait_for(lock, kLook);
    if (stop_ || woken_) return;
  }
}

void CudaLink::arrived(const Flight& flight, float ms) {
  const tier::Chunk chunk = flight.chunk;
  const Nanos now = clock_.now(), took(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
  oldest_ = (oldest_ + 1) % kFlights;
  --under_way_;
  tier_.chunk_done(now, chunk, took);
  // Chunks follow one another on the stream; they are only noticed a little late.
  carried(chunk, std::max(now - took, std::exchange(last_arrival_, now)), now);
}

}  // namespace moestro::device
