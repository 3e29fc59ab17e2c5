#include "services/worker/device/emulated_link.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "common/sharp_wait.h"

namespace moestro::device {

EmulatedLink::EmulatedLink(tier::DeviceTier& tier, const SlotMemory& slots, const LinkOptions& options,
                           const Clock& clock, uint32_t keys)
    : ExpertLink(tier, clock, keys), slots_(slots), options_(options) {
  if (options.kv)
    kv_ = std::make_unique<EmulatedKv>(EmulatedKv::Options{options.bytes_per_s, options.latency}, clock, mutex_,
                                       [this] { wake(); }, [this] { note_end(); });
  if (options.dense)
    dense_ = std::make_unique<EmulatedDense>(EmulatedDense::Options{options.bytes_per_s, options.latency}, clock,
                                             [this] { note_end(); });
  thread_ = std::thread([this] { run(); });
}

EmulatedLink::~EmulatedLink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void EmulatedLink::wake() {
  int64_t not_yet = 0;
  woken_ns_.compare_exchange_strong(not_yet, clock_.now().count());
  work_.notify_one();
}

void EmulatedLink::run() {
  prctl(PR_SET_TIMERSLACK,
        1UL);  // of this thread: chunks last tens of microseconds, the kernel's 50 of slack would double them
  std::unique_lock lock(mutex_);
  Nanos from{0};  // when the link could have begun with the next chunk
  while (!stop_) {
    if (carry_next(lock, from)) {
      from = free_at_;
      continue;
    }
    woken_ns_ = 0;
    work_.wait(lock);
    from = Nanos(woken_ns_);  // a thread that waits wakes late; a link does not
  }
}

/// KV and dense weights come before the experts of their own layer and of later ones, whose routers need them; of both,
/// what an earlier layer needs, and all rows of a layer need its weights. The next step's weights come last. False:
/// there is nothing.
bool EmulatedLink::carry_next(std::unique_lock<std::mutex>& lock, Nanos from) {
  const Nanos now = clock_.now(), begin = from.count() > 0 ? from : now;
  const bool kv_first = kv_ && kv_->comes_first(tier_.waiting_layer());
  const bool dense_first = dense_ && dense_->comes_first(tier_.waiting_layer()) &&
                           !(kv_first && kv_->next_layer() < dense_->layer());
  if (dense_first) return dense_->carry_in(lock, begin, free_at_), true;
  if (!kv_first) {
    if (const auto chunk = tier_.next_chunk(now)) return carry(lock, *chunk, begin), true;
  }
  if (kv_ && kv_->has_more_to_bring()) return kv_->carry_in(lock, begin, free_at_), true;
  if (dense_ && dense_->has_more()) return dense_->carry_in(lock, begin, free_at_), true;
  return false;
}

void EmulatedLink::carry(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk, Nanos from) {
  const std::byte* source = sources_[chunk.key].data + chunk.offset;
  const uint64_t bytes = sources_[chunk.key].bytes_of(chunk);
  copying_ = chunk.key;
  const Nanos begin = std::max(from, free_at_);
  const auto wire =
      Nanos(static_cast<int64_t>(static_cast<double>(chunk.bytes) * 1e9 / static_cast<double>(options_.bytes_per_s)));
  free_at_ = begin + wire + (chunk.offset == 0 ? options_.latency : Nanos(0));
  lock.unlock();
  if (options_.poison_slots && chunk.offset == 0) slots_.poison(chunk.slot);
  std::memcpy(slots_.slot(chunk.slot) + chunk.offset, source, bytes);
  wait_sharply_until(clock_, free_at_);
  lock.lock();
  copying_ = kNone;
  // The link's own end, not when this thread woke: what the tier learns of the link must not depend on how busy the
  // host is.
  tier_.chunk_done(std::max(free_at_, begin), chunk, free_at_ - begin);
  carried(chunk, begin, free_at_);
}

}  // namespace moestro::device
