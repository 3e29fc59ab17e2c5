#include "services/worker/device/cuda_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace moestro::device {
namespace {

/// Between two looks at chunks that are in flight: where there is one, and where another is behind it, which keeps the
/// copy engine busy until this thread has noticed.
constexpr Nanos kLook = std::chrono::microseconds(20), kLookAtSome = std::chrono::microseconds(100);

}  // namespace

Result<std::unique_ptr<CudaLink>> CudaLink::create(tier::DeviceTier& tier, const SlotMemory& slots,
                                                   const ArenaRegistration& arena, const CudaSlots& device,
                                                   const Options& options, const Clock& clock) {
  std::unique_ptr<CudaLink> link(new CudaLink(tier, slots, arena, device, options, clock));
  MOESTRO_RETURN_IF_ERROR(link->make(arena));
  link->thread_ = std::thread([made = link.get()] { made->run(); });
  return link;
}

CudaLink::CudaLink(tier::DeviceTier& tier, const SlotMemory& slots, const ArenaRegistration& arena,
                   const CudaSlots& device, const Options& options, const Clock& clock)
    : ExpertLink(tier, clock, options.keys),
      cuda_(*device.functions),
      slots_(slots),
      device_(device),
      options_(options),
      launches_(device),
      experts_(device, arena),
      launch_of_(options.slots) {}

Status CudaLink::make(const ArenaRegistration& arena) {
  const uint64_t bytes = std::min(device_.chunk(slots_.slot_bytes()), slots_.slot_bytes());
  MOESTRO_RETURN_IF_ERROR(experts_.make(bytes, "for the copies of experts"));
  if (const MoestroCudaResult result = launches_.make(); result != 0)
    return exhausted(words_of(device_, "make_event", result) + ", for the copies of experts");
  if (options_.kv) {
    kv_ = std::make_unique<CudaKv>(
        device_, clock_,
        CudaKv::Calls{.failed = [this](const Status& failure) { fail_by_kv(failure); },
                      .gives_way = [this](int32_t moe_layer) { return kv_gives_way(moe_layer); }});
    MOESTRO_RETURN_IF_ERROR(kv_->make());
  }
  if (options_.layer_bytes == 0) return Status::ok();
  dense_ = std::make_unique<CudaDense>(device_, arena, launches_, clock_, [this] { note_end(); });
  return dense_->make(options_.layer_bytes);
}

CudaLink::~CudaLink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool CudaLink::is_copying(tier::Key key) const {
  for (uint64_t copy = experts_.ended(); copy < experts_.sent(); ++copy)
    if (chunks_[copy % CudaCopies::kFlights].key == key) return true;
  return false;
}

void CudaLink::wake() {
  woken_ = true;
  work_.notify_one();
}

void CudaLink::fail_by_kv(const Status& failure) {
  const std::lock_guard lock(mutex_);
  fail(failure);
}

bool CudaLink::kv_gives_way(int32_t moe_layer) {
  const std::lock_guard lock(mutex_);
  const auto waiting = tier_.waiting_layer();
  if (!waiting || *waiting >= moe_layer) return false;
  for (uint64_t copy = experts_.ended(); copy < experts_.sent(); ++copy)
    if (chunks_[copy % CudaCopies::kFlights].demand) return true;
  return false;
}

Status CudaLink::launched() {
  const Status recorded = launches_.record();
  const std::lock_guard lock(mutex_);
  if (recorded.is_ok()) launches_.count();
  else fail(recorded);
  return failure();
}

// --- its thread ---

void CudaLink::run() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: chunks last tens of microseconds, as does the kernel's slack
  std::unique_lock lock(mutex_);
  if (const Status used =
          fell_off(device_, "use_device", cuda_.use_device(static_cast<int32_t>(device_.index)));
      !used.is_ok())
    fail(used);
  while (!stop_ && failure().is_ok()) {
    woken_ = false;
    if (send_next(lock)) continue;
    if (under_way() > 0) look(lock);
    else work_.wait(lock);
  }
  if (dense_ != nullptr) dense_->finish(lock);
  lock.unlock();
  experts_.finish();  // what is under way reads leases and writes slots; a device that fell off does neither
}

/// Dense weights of the step come before the experts of their own layer and of later ones, whose routers need them;
/// those of the next step come last. While a place is still read the link is there for experts. False: nothing is to be
/// sent now.
bool CudaLink::send_next(std::unique_lock<std::mutex>& lock) {
  const auto sent = [this](const Status& queued) {
    if (!queued.is_ok()) fail(queued);
    return true;
  };
  if (dense_ != nullptr && dense_->comes_first(tier_.waiting_layer()) && !dense_->waits_for_kernels())
    return dense_->has_room() && sent(dense_->send(lock));
  if (experts_.has_room()) {
    if (const auto chunk = tier_.next_chunk(clock_.now())) return sent(send(lock, *chunk));
  }
  return dense_ != nullptr && dense_->has_more() && dense_->has_room() && sent(dense_->send(lock));
}

Status CudaLink::send(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk) {
  const bool first = chunk.offset == 0;
  chunks_[experts_.sent() % CudaCopies::kFlights] = chunk;
  return experts_.send(lock, {.to = slots_.slot(chunk.slot) + chunk.offset,
                              .from = sources_[chunk.key].data + chunk.offset,
                              .bytes = chunk.bytes,
                              .readers = first ? launches_.event_of(launch_of_[chunk.slot]) : nullptr,
                              .poison = slots_.slot(chunk.slot),
                              .poison_bytes = options_.poison_slots && first ? slots_.slot_bytes() : 0});
}

/// Until a chunk has arrived, or there may be something to queue behind it: then this thread is woken. It does not ask
/// the tier before, which would lock out the engine.
void CudaLink::look(std::unique_lock<std::mutex>& lock) {
  while (true) {
    const Result<bool> some = has_arrived(lock);
    if (!some.is_ok()) return fail(some.status());
    if (*some) return;
    if (!stop_ && !woken_) work_.wait_for(lock, under_way() > 1 ? kLookAtSome : kLook);
    if (stop_ || woken_) return;
  }
}

Result<bool> CudaLink::has_arrived(std::unique_lock<std::mutex>& lock) {
  if (dense_ != nullptr && dense_->under_way() > 0) {
    MOESTRO_ASSIGN_OR_RETURN(const bool some, dense_->look(lock));
    if (some) return true;
  }
  if (experts_.under_way() == 0) return false;
  // Without room there is nothing else to do, and the chunk behind it keeps the copy engine busy until this thread has
  // been woken. With room, something may have to be queued behind the one in flight before that has arrived.
  const bool waits = !experts_.has_room() && dense_ == nullptr;
  MOESTRO_ASSIGN_OR_RETURN(const std::optional<Nanos> took, experts_.look(lock, waits));
  if (took) arrived(chunks_[(experts_.ended() - 1) % CudaCopies::kFlights], *took);
  return took.has_value();
}

void CudaLink::arrived(const tier::Chunk& chunk, Nanos took) {
  const Nanos now = clock_.now();
  tier_.chunk_done(now, chunk, took);
  // Chunks follow one another on the stream; they are only noticed a little late.
  carried(chunk, std::max(now - took, std::exchange(last_arrival_, now)), now);
}

}  // namespace moestro::device
