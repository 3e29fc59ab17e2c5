#include "store/client/store_client.h"

#include <algorithm>
#include <utility>

#include "common/fault_point.h"
#include "common/shm/futex.h"
#include "common/shm/use_clock.h"
#include "store/client/shared_words.h"
#include "store/client/wire.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Status over(const Attachment& at) {
  const bool shut_down = at.header().closed.load() == static_cast<uint32_t>(Closed::kShutDown);
  return unavailable("the store at " + at.endpoint + (shut_down ? " has shut down" : " has begun a new arena") +
                     ": its memory is no longer this worker's; attach anew");
}

/// A pin word of this worker, which alone writes it. Its reads of the payload come before.
void release_word(std::atomic<uint64_t>& word) {
  words::store(word, PinWord::unpinned(words::load(word, std::memory_order_relaxed)), std::memory_order_release);
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::attach(const AttachOptions& options) {
  MOESTRO_ASSIGN_OR_RETURN(auto attachment, attach_to_store(options));
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(attachment), options.store_wait));
  MOESTRO_RETURN_IF_ERROR(client->load_dense(options.timeout));
  return client;
}

StoreClient::StoreClient(std::unique_ptr<Attachment> attachment, milliseconds store_wait)
    : at_(std::move(attachment)),
      blobs_(at_->manifest.blobs.size()),
      arena_(at_->arena.data()),
      share_(&at_->header().share_bytes[at_->slot]),
      pin_bytes_min_(&at_->header().pin_bytes_min),
      told_(&at_->pins_header()),
      why_(blobs_.size()),
      store_wait_(store_wait),
      epoch_(at_->header().epoch.load()) {
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob) {
    const uint32_t entry = at_->entries[blob];
    const Blob& known = at_->manifest.blobs[blob];
    blobs_[blob] = {&at_->pin(entry), &at_->entry(entry), known.length, Use::kNone, {}, known.kind == BlobKind::kDense};
    blobs_[blob].streamed = std::ranges::binary_search(at_->streamed, blob);
    blob_of_entry_[entry] = blob;
  }
  for (BlobState& state : blobs_) (void)follow(state);  // what other models brought in before us
  completions_read_ = at_->bell_header().head.load(std::memory_order_acquire);
}

StoreClient::~StoreClient() {
  for (BlobState& state : blobs_) clear_pin(state);
  flatbuffers::FlatBufferBuilder b;
  // Only a courtesy: the lock of the slot, which goes with this process, says the same.
  (void)at_->socket.send(
      encode(b, wire::StoreBody::DetachStore, wire::CreateDetachStore(b, at_->slot, at_->incarnation)));
}

/// Waits as long as dense weights keep arriving; `timeout` is for a store that sends nothing at all.
Status StoreClient::load_dense(milliseconds timeout) {
  std::vector<uint32_t> dense;
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob)
    if (blobs_[blob].dense && !blobs_[blob].streamed) dense.push_back(blob);
  for (const uint32_t blob : dense) blobs_[blob].held = true;
  MOESTRO_RETURN_IF_ERROR(fetch(dense, {}));
  for (size_t i = 0; i < dense.size(); ++i) {
    auto arrived = next_arrival(std::max(timeout, milliseconds(30000)));
    if (!arrived) return arrived.status().with_context("loading dense weights");
  }
  counters_ = {};
  return Status::ok();
}

void StoreClient::set_pin(BlobState& state) {
  if (!state.dense) {
    pinned_bytes_ += state.length, ++pinned_experts_;
    told_->uses.store(told_->uses.load(std::memory_order_relaxed) + state.weight.sixteenths(),
                      std::memory_order_relaxed);
  }
  pinned_streamed_ += state.streamed;
  state.pinned = true;
  // Sequentially consistent, and before the load of the table's word: see StoreMachine::try_evict.
  const uint64_t old = words::load(*state.pin, std::memory_order_relaxed);  // ours alone
  const uint32_t parts = state.weight.sixteenths();
  const uint64_t stamp = parts == UseWeight::kWhole ? shm::use_stamp() : PinWord::stamp(old);
  words::store(*state.pin, PinWord::used(old, parts, stamp), std::memory_order_seq_cst);
}

void StoreClient::clear_pin(BlobState& state) {
  if (!state.pinned) return;
  state.pinned = false;
  if (!state.dense) pinned_bytes_ -= state.length, --pinned_experts_;
  pinned_streamed_ -= state.streamed;
  if (state.twin != kNoTwin && twin_pinned(state)) return;
  release_word(*state.pin);
}

/// Nobody waits for this blob any more; dense weights stay pinned for as long as the client lives.
void StoreClient::let_go(BlobState& state) {
  if (!state.held) clear_pin(state);
}

StoreClient::Seen StoreClient::see(const TableEntry& entry) {
  const uint32_t finds = words::load(entry.found_wrong, std::memory_order_acquire);
  const uint64_t word = words::load(entry.word, std::memory_order_seq_cst);
  return {finds, ResidencyWord::state(word), static_cast<uint8_t>(ResidencyWord::generation(word))};
}

std::optional<StoreClient::Seen> StoreClient::pin_if_resident(BlobState& state) {
  Residency before = ResidencyWord::state(words::load(state.entry->word, std::memory_order_relaxed));
  if (before == Residency::kAlias) before = follow(state).residency;
  if (before != Residency::kResident) return std::nullopt;  // no need to write
  set_pin(state);
  if (const Seen seen = see(*state.entry); seen.resident()) return seen;
  clear_pin(state);
  return std::nullopt;
}

/// The state of its entry; an alias is followed to the entry that has the bytes, once and for good, and a pin goes with
/// it: set there before it is taken away here, so that whatever arrives in between lands pinned.
StoreClient::Seen StoreClient::follow(BlobState& state) {
  const Seen seen = see(*state.entry);
  if (seen.residency != Residency::kAlias) return seen;
  const uint32_t alias = words::load(state.entry->alias, std::memory_order_acquire);
  if (alias == 0 || alias > at_->header().entries) return {};  // no store writes that
  const bool pinned = state.pinned;
  const auto blob = static_cast<uint32_t>(&state - blobs_.data());
  BlobState before = state;
  state.pin = &at_->pin(alias - 1), state.entry = &at_->entry(alias - 1);
  if (pinned) {
    set_pin(state);
    if (!state.dense) pinned_bytes_ -= state.length, --pinned_experts_;  // it is counted already
    pinned_streamed_ -= state.streamed;
    release_word(*before.pin);
  }
  join_twins(blob, alias - 1);
  return see(*state.entry);
}

/// Equal experts within one model use one pin word, which is theirs together.
void StoreClient::join_twins(uint32_t blob, uint32_t entry) {
  const auto [other, alone] = blob_of_entry_.try_emplace(entry, blob);
  if (alone) return;
  BlobState& twin = blobs_[other->second];
  blobs_[blob].twin = twin.twin == kNoTwin ? other->second : twin.twin;
  twin.twin = blob;
}

bool StoreClient::twin_pinned(const BlobState& state) const {
  for (const BlobState* twin = &blobs_[state.twin]; twin != &state; twin = &blobs_[twin->twin])
    if (twin->pinned) return true;
  return false;
}

Lease StoreClient::lease(uint32_t blob, const Seen& seen) {
  BlobState& state = blobs_[blob];
  const uint64_t offset = words::load(state.entry->offset, std::memory_order_relaxed);  // after the word: it is ours
  state.use = Use::kLeased;
  state.generation = seen.generation;
  return Lease(this, blob, arena_ + offset, state.length, seen.finds);
}

uint32_t StoreClient::finds(uint32_t blob) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read of the blob was read before
  return words::load(blobs_[blob].entry->found_wrong, std::memory_order_relaxed);
}

uint64_t StoreClient::finds_of_all() const {
  return at_->header().found_wrong.load(std::memory_order_acquire);
}

std::optional<Lease> StoreClient::try_pin(uint32_t blob, UseWeight weight) {
  if (blob >= blobs_.size()) return std::nullopt;
  BlobState& state = blobs_[blob];
  if (state.use == Use::kLeased) return std::nullopt;
  state.weight = weight;
  std::optional<Seen> seen;
  if (state.pinned) seen = follow(state);  // dense and held, or asked for and perhaps there by now
  else if (fits_share(state)) seen = pin_if_resident(state);
  if (!seen || !seen->resident()) return std::nullopt;
  if (state.use != Use::kNone) drop(blob);  // it will not arrive a second time
  counters_.hits += !state.dense;
  counters_.brought += !state.dense && state.generation != seen->generation;
  told_->hits.store(counters_.hits, std::memory_order_relaxed);
  return lease(blob, *seen);
}

bool StoreClient::has(uint32_t blob) { return blob < blobs_.size() && follow(blobs_[blob]).resident(); }

void StoreClient::unpin(uint32_t blob) {
  BlobState& state = blobs_[blob];
  state.use = Use::kNone;
  let_go(state);
}

/// Takes a blob off the lists of what is to arrive; its pin is left as it is.
void StoreClient::drop(uint32_t blob) {
  blobs_[blob].use = Use::kNone;
  std::erase(asked_, blob);
  std::erase(asked_streamed_, blob);
  std::erase(waiting_, blob);
  std::erase(ready_, blob);
}

Status StoreClient::fetch(std::span<const uint32_t> blobs, WantedBy why) {
  for (const uint32_t blob : blobs)
    if (blob >= blobs_.size())
      return invalid_argument("blob " + std::to_string(blob) + " of model " + at_->manifest.model_name +
                              ", which has " + std::to_string(blobs_.size()));
  if (state_ == StoreState::kOver) return over(*at_);
  for (const uint32_t blob : blobs) {
    BlobState& state = blobs_[blob];
    if (state.use != Use::kNone) continue;
    const uint64_t word = state.entry->word.load(std::memory_order_relaxed);
    ++counters_.misses;
    told_->misses.store(counters_.misses, std::memory_order_relaxed);
    counters_.late += ResidencyWord::state(word) == Residency::kLoading;
    state.use = Use::kWaiting;
    why_[blob] = why;
    waiting_.push_back(blob);
  }
  activate_waiting();
  return state_ == StoreState::kOver ? over(*at_) : Status::ok();
}

/// Pins and asks for as many of the waiting blobs as the share allows, in order.
void StoreClient::activate_waiting() {
  const auto fits = [this] { return !waiting_.empty() && fits_share(blobs_[waiting_.front()]); };
  while (fits()) {
    if (asked_.empty()) look_due_ = Clock::now() + kLook;
    const WantedBy why = why_[waiting_.front()];
    std::vector<uint32_t> batch;
    while (fits()) {
      const uint32_t blob = waiting_.front();
      BlobState& state = blobs_[blob];
      if (why_[blob].plan != why.plan || why_[blob].moe_layer != why.moe_layer) break;
      waiting_.pop_front();
      state.use = Use::kAsked;
      asked_.push_back(blob);
      set_pin(state);  // the intent goes first, so that the blob lands pinned
      if (follow(state).resident()) ready_.push_back(blob);
      else batch.push_back(blob);
    }
    if (batch.empty()) continue;
    (void)ask(batch, why);  // a message that is lost is sent again by the next look
    if (!blobs_[batch.front()].dense) MOESTRO_FAULT_POINT("asked");
  }
}

Status StoreClient::ask(const std::vector<uint32_t>& blobs, WantedBy why) {
  if (state_ != StoreState::kThere) return Status::ok();  // it is asked when it is back
  flatbuffers::FlatBufferBuilder b;
  const auto list = b.CreateVector(blobs);
  return at_->socket.send(
      encode(b, wire::StoreBody::FetchBlobs,
             wire::CreateFetchBlobs(b, at_->slot, at_->incarnation, why.plan.value, why.moe_layer.value, list)));
}

/// Arrived, failed, or (nothing) still on its way.
std::optional<Result<Lease>> StoreClient::look_at(uint32_t blob) {
  if (blobs_[blob].use != Use::kAsked) return std::nullopt;
  const TableEntry* asked_of = blobs_[blob].entry;
  const Seen seen = follow(blobs_[blob]);
  // What was asked for turned out to be another entry's content: that one may have to be read again, for us.
  if (blobs_[blob].entry != asked_of && !seen.resident()) (void)ask({blob}, why_[blob]);
  if (seen.resident()) {
    drop(blob);
    counters_.fetched_bytes += blobs_[blob].length;
    if (!blobs_[blob].dense) MOESTRO_FAULT_POINT("leased");
    return lease(blob, seen);
  }
  if (seen.residency != Residency::kBad) return std::nullopt;
  if (auto failure = failure_of(blob)) return *std::move(failure);
  return std::nullopt;
}

/// Of a blob that is BAD: ends its fetch. None: its message is on the way, or comes when we ask again.
std::optional<Status> StoreClient::failure_of(uint32_t blob) {
  read_messages();
  const auto why = failures_.find(blob);
  if (why == failures_.end()) return std::nullopt;
  Status failure = why->second;
  failures_.erase(why);
  failed_blob_ = blob;
  drop(blob);
  let_go(blobs_[blob]);
  return failure;
}

std::optional<Result<Lease>> StoreClient::collect() {
  while (!ready_.empty()) {
    const uint32_t blob = ready_.front();
    ready_.pop_front();
    if (auto arrived = look_at(blob)) return arrived;
  }
  const uint64_t head = at_->bell_header().head.load(std::memory_order_acquire);
  if (head - completions_read_ > kBellRing)
    completions_read_ = head;  // overrun: the next look at all of them finds what is there
  while (completions_read_ < head) {
    const auto found = blob_of_entry_.find(Completion::entry(at_->completion(completions_read_++)));
    if (found == blob_of_entry_.end()) continue;
    if (auto arrived = look_at(found->second)) return arrived;
  }
  for (const uint32_t blob : asked_)  // what the bell did not tell: overrun, or resident through another worker
    if (auto arrived = look_at(blob)) return arrived;
  return std::nullopt;
}

/// A store that is back is known by its epoch too: it may have been away and back between two looks.
void StoreClient::look_at_store() {
  if (state_ == StoreState::kOver) return;
  if (at_->closed()) {
    state_ = StoreState::kOver;
    return;
  }
  if (at_->store_gone()) {
    if (state_ == StoreState::kThere) away_since_ = Clock::now();
    state_ = StoreState::kAway;
    return;
  }
  state_ = StoreState::kThere;
  const uint64_t epoch = at_->header().epoch.load(std::memory_order_acquire);
  resumed_ += epoch != epoch_;
  epoch_ = epoch;
}

Status StoreClient::check() {
  look_at_store();
  return state_ == StoreState::kOver ? over(*at_) : Status::ok();
}

Result<Lease> StoreClient::next_arrival(milliseconds timeout) {
  failed_blob_.reset();
  const auto deadline = Clock::now() + timeout;
  while (true) {
    const uint32_t rung = at_->bell_header().doorbell.load(std::memory_order_acquire);
    activate_waiting();
    if (auto arrived = collect()) return std::move(*arrived);
    if (state_ == StoreState::kOver) return fail_one();
    if (asked_.empty() && waiting_.empty()) return unavailable("no fetch is outstanding");
    if (asked_.empty())
      return exhausted("leases fill this worker's share of the arena (" + std::to_string(pinned_cost()) + " of " +
                       std::to_string(share_bytes()) + " bytes): release them before waiting for more");
    const auto now = Clock::now();
    if (now >= look_due_) {
      look_at_store();
      if (waited_long_enough()) return fail_for_want_of_store(asked_.front());
      ask_again();
      look_due_ = now + kLook;
      continue;
    }
    if (now >= deadline) return unavailable("no expert arrived in time");
    shm::futex_wait(at_->bell_header().doorbell, rung, std::min(deadline, look_due_) - now);
  }
}

/// The arena is over: one outstanding fetch ends with that.
Result<Lease> StoreClient::fail_one() {
  if (asked_.empty() && waiting_.empty()) return over(*at_);
  const uint32_t blob = asked_.empty() ? waiting_.front() : asked_.front();
  drop(blob);
  let_go(blobs_[blob]);
  return io_error(over(*at_).message());
}

Result<Lease> StoreClient::fail_for_want_of_store(uint32_t blob) {
  drop(blob);
  let_go(blobs_[blob]);
  failed_blob_ = blob;
  return io_error("blob " + std::to_string(blob) + " of model " + at_->manifest.model_name +
                  " is not in memory, and no store has come back at " + at_->endpoint + " for " +
                  std::to_string(store_wait_.count()) + " ms: start moestro-store again");
}

/// Idempotent: whatever was lost on the way is made good.
void StoreClient::ask_again() {
  read_messages();
  for (const std::vector<uint32_t>* asked : {&asked_, &asked_streamed_})
    for (const uint32_t blob : *asked) (void)ask({blob}, why_[blob]);
}

void StoreClient::read_messages() {
  while (true) {
    auto bytes = at_->socket.receive();
    if (!bytes || !*bytes) return;
    const wire::StoreMessage* message = decode(**bytes);
    if (message == nullptr) continue;
    if (message->body_type() == wire::StoreBody::StoreRefused) {
      // Only of a slot that is no longer ours: a store that took our place knows nothing of our fetches.
      if (message->body_as_StoreRefused()->code() == static_cast<uint32_t>(Code::kUnavailable))
        state_ = StoreState::kOver;
      continue;
    }
    if (message->body_type() != wire::StoreBody::BlobFailed) continue;
    const auto* failed = message->body_as_BlobFailed();
    const bool known = failed->code() > 0 && failed->code() <= static_cast<uint32_t>(Code::kInternal);
    if (failed->blob() < blobs_.size())
      failures_.insert_or_assign(failed->blob(), Status(known ? static_cast<Code>(failed->code()) : Code::kInternal,
                                                        failed->message() ? failed->message()->str() : "unreadable"));
  }
}

void StoreClient::cancel_fetches() {
  if (asked_.empty() && waiting_.empty() && asked_streamed_.empty()) return;
  std::vector<uint32_t> asked = asked_;
  asked.insert(asked.end(), asked_streamed_.begin(), asked_streamed_.end());
  for (const uint32_t blob : asked) {
    drop(blob);
    let_go(blobs_[blob]);
  }
  for (const uint32_t blob : waiting_) blobs_[blob].use = Use::kNone;
  waiting_.clear();
  flatbuffers::FlatBufferBuilder b;
  (void)at_->socket.send(
      encode(b, wire::StoreBody::CancelFetches, wire::CreateCancelFetches(b, at_->slot, at_->incarnation)));
}

}  // namespace moestro::store
