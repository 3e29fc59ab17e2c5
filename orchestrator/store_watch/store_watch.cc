#include "orchestrator/store_watch/store_watch.h"

#include <array>

#include "common/log.h"
#include "common/wire/store_messages_generated.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
constexpr milliseconds kEvery{1000}, kWithin{2000}, kLook{100};
constexpr uint32_t kProtocol = 2;

net::Bytes question() {
  flatbuffers::FlatBufferBuilder b;
  const auto body = wire::CreateStoreStatusRequest(b, kProtocol);
  b.Finish(wire::CreateStoreMessage(b, wire::StoreBody::StoreStatusRequest, body.Union()),
           wire::StoreMessageIdentifier());
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

/// More of either a box does not have, and nobody could look at.
constexpr uint32_t kListedMax = 64;

std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

void add_models(const wire::StoreStatus& s, StoreFigures& f) {
  for (uint32_t i = 0; s.models() != nullptr && i < std::min(s.models()->size(), kListedMax); ++i) {
    const auto& m = *s.models()->Get(i);
    if (m.retired()) continue;  // its successor may have its name
    f.models.push_back(
        {text(m.name()), m.dense_bytes() + m.expert_bytes(), m.used_bytes(), m.experts(), m.resident_experts(),
         m.version(), m.layers(), m.streamed_layers(), m.streamed_bytes()});
  }
}

void add_reading(const wire::StoreReading& r, StoreFigures& f) {
  for (uint32_t i = 0; r.drives() != nullptr && i < std::min(r.drives()->size(), kListedMax); ++i) {
    const auto& d = *r.drives()->Get(i);
    f.drives.push_back({text(d.path()), d.bytes_read(), d.retries(), d.bytes_per_s(), 0});
  }
  constexpr std::array kClasses{"demand", "prefetch", "scrub"};
  for (uint32_t i = 0; i < kClasses.size(); ++i) {
    const auto of = [i](const auto* counts) -> uint64_t {
      return counts != nullptr && i < counts->size() ? counts->Get(i) : 0;
    };
    f.queues.push_back({kClasses[i], of(r.queued()), of(r.loading())});
  }
}

}  // namespace

std::optional<StoreFigures> read_store_status(const net::Bytes& bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size());
  if (bytes.size() < 8 || !wire::VerifyStoreMessageBuffer(verifier)) return std::nullopt;
  const wire::StoreStatus* s = wire::GetStoreMessage(data)->body_as_StoreStatus();
  if (s == nullptr) return std::nullopt;
  StoreFigures f;
  f.epoch = s->epoch();
  f.arena_bytes = s->arena_bytes(), f.used_bytes = s->used_bytes(), f.resident_bytes = s->resident_bytes();
  f.fetches = s->fetches(), f.loads = s->loads(), f.evictions = s->evictions(), f.bytes_read = s->bytes_read();
  f.retries = s->retries(), f.bad_blobs = s->bad_blobs(), f.unreadable = s->unreadable();
  f.adopted = s->adopted(), f.unchecked = s->unchecked(), f.damaged = s->damaged();
  f.memory_changed_s = s->memory_changed_s();
  f.joined = s->joined();
  f.policy = text(s->policy()), f.reader = text(s->reader());
  add_models(*s, f);
  if (const auto* r = s->reading()) {
    add_reading(*r, f);
    f.prefetches = r->prefetches(), f.prefetches_used = r->prefetches_used(), f.prefetches_late = r->prefetches_late();
    f.prefetches_wasted = r->prefetches_wasted(), f.prefetch_wasted_bytes = r->prefetch_wasted_bytes();
    f.prefetches_dropped = r->prefetches_dropped();
    f.foreseen_below_floor = r->foreseen_below_floor(), f.foreseen_over_budget = r->foreseen_over_budget();
    f.foreseen_early = r->foreseen_early(), f.foreseen_guarded = r->foreseen_guarded();
    f.scrub_mismatches = r->scrub_mismatches();
  }
  if (s->workers() != nullptr)
    for (const auto* worker : *s->workers()) ++f.workers, f.pins += worker->pinned();
  if (const auto* w = s->warm_start()) {
    f.warm_bytes = w->bytes(), f.warm_bytes_there = w->bytes_there(), f.warm_left_out = w->left_out();
    f.warm_running = w->running();
  }
  return f;
}

void add_rates(const StoreFigures& before, double seconds, StoreFigures& now) {
  if (before.epoch != now.epoch || seconds <= 0) return;
  for (size_t i = 0; i < std::min(before.drives.size(), now.drives.size()); ++i) {
    const auto& was = before.drives[i];
    auto& is = now.drives[i];
    if (was.path == is.path && is.bytes_read > was.bytes_read)
      is.read_per_s = static_cast<double>(is.bytes_read - was.bytes_read) / seconds;
  }
}

StoreWatch::StoreWatch(std::string endpoint, std::function<void(const StoreFigures&)> on_answer)
    : endpoint_(std::move(endpoint)), on_answer_(std::move(on_answer)), thread_([this] { run(); }) {}

StoreWatch::~StoreWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::optional<StoreFigures> StoreWatch::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

bool StoreWatch::stopped_within(milliseconds wait) {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, wait, [this] { return stop_; });
}

/// A socket for each question: an answer that comes late answers none that was asked later.
void StoreWatch::run() {
  Clock::time_point asked{};
  do {
    std::optional<StoreFigures> figures;
    if (auto socket = net::DealerSocket::connect(endpoint_)) figures = ask(*socket);
    else log::debug("the store's figures: {}", socket.status().message());
    if (figures && on_answer_) on_answer_(*figures);
    const auto now = Clock::now();
    const std::lock_guard lock(mutex_);
    if (latest_ && figures) add_rates(*latest_, std::chrono::duration<double>(now - asked).count(), *figures);
    asked = now;
    latest_ = std::move(figures);
  } while (!stopped_within(kEvery));
}

std::optional<StoreFigures> StoreWatch::ask(net::DealerSocket& socket) const {
  if (!socket.send(question())) return std::nullopt;
  const auto deadline = Clock::now() + kWithin;
  while (Clock::now() < deadline) {
    const auto ready = socket.wait(kLook);
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return std::nullopt;
    }
    if (!ready) return std::nullopt;
    if (!*ready) continue;
    const auto bytes = socket.receive();
    if (!bytes) return std::nullopt;
    if (*bytes) return read_store_status(**bytes);
  }
  return std::nullopt;
}

}  // namespace moestro::orchestrator
