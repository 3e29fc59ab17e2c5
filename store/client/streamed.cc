// Dense weights that take turns in the store's memory. A step knows which one it needs next, so these are not queued
// with experts: what is asked for fits into this worker's share of the places, and is taken by name.

#include "common/check.h"
#include "common/fault_point.h"
#include "common/shm/futex.h"
#include "store/client/shared_words.h"
#include "store/client/store_client.h"

namespace moestro::store {
namespace {
using Clock = std::chrono::steady_clock;
}  // namespace

bool StoreClient::ask_streamed(uint32_t blob, WantedBy why) {
  MOESTRO_CHECK(blob < blobs_.size() && blobs_[blob].streamed, "a streamed blob of this model");
  BlobState& state = blobs_[blob];
  if (state.use != Use::kNone) return true;
  if (!fits_share(state)) return false;
  if (asked_.empty() && asked_streamed_.empty()) look_due_ = Clock::now() + kLook;
  why_[blob] = why;
  state.use = Use::kStreamed;
  asked_streamed_.push_back(blob);
  set_pin(state);  // the intent goes first, so that the blob lands pinned
  if (follow(state).resident()) return true;
  counters_.streamed_bytes += state.length;
  (void)ask({blob}, why);  // a message that is lost is sent again by the next look
  MOESTRO_FAULT_POINT("asked");
  return true;
}

Result<Lease> StoreClient::take_streamed(uint32_t blob, std::chrono::milliseconds timeout) {
  MOESTRO_CHECK(blob < blobs_.size() && blobs_[blob].streamed, "a streamed blob of this model");
  failed_blob_.reset();
  BlobState& state = blobs_[blob];
  if (state.use != Use::kStreamed)
    return exhausted("dense weights fill this worker's share of the places where they take turns (" +
                     std::to_string(pinned_streamed_) + " of " + std::to_string(window_share()) +
                     "): release them before waiting for more");
  const auto deadline = Clock::now() + timeout;
  while (true) {
    const uint32_t rung = at_->bell_header().doorbell.load(std::memory_order_acquire);
    const TableEntry* asked_of = state.entry;
    const Seen seen = follow(state);
    if (seen.resident()) {
      drop(blob);
      MOESTRO_FAULT_POINT("leased");
      return lease(blob, seen);
    }
    if (state.entry != asked_of) (void)ask({blob}, why_[blob]);  // another entry has its content, but not in memory
    if (seen.residency == Residency::kBad)
      if (auto failure = failure_of(blob)) return *std::move(failure);
    if (state_ == StoreState::kOver) {
      drop(blob);
      let_go(state);
      return io_error(check().message());
    }
    const auto now = Clock::now();
    if (now >= look_due_) {
      look_at_store();
      if (waited_long_enough()) return fail_for_want_of_store(blob);
      ask_again();
      look_due_ = now + kLook;
      continue;
    }
    if (now >= deadline) return unavailable("no dense weights arrived in time");
    shm::futex_wait(at_->bell_header().doorbell, rung, std::min(deadline, look_due_) - now);
  }
}

}  // namespace moestro::store
