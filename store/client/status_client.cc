#include "store/client/status_client.h"

#include <filesystem>
#include <fstream>

#include "store/client/wire.h"

namespace moestro::store {
namespace {
std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

StoreReadingReport read_reading(const wire::StoreReading& r) {
  StoreReadingReport report;
  if (r.drives() != nullptr)
    for (const auto* d : *r.drives())
      report.drives.push_back({text(d->path()), text(d->reader()), d->chunk_bytes(), d->depth(), d->bytes_per_s(),
                               d->bytes_read(), d->retries(), d->registered()});
  report.prefetches = r.prefetches(), report.prefetches_used = r.prefetches_used();
  report.prefetches_late = r.prefetches_late(), report.prefetches_wasted = r.prefetches_wasted();
  report.prefetch_wasted_bytes = r.prefetch_wasted_bytes(), report.prefetches_dropped = r.prefetches_dropped();
  report.foreseen_below_floor = r.foreseen_below_floor(), report.foreseen_over_budget = r.foreseen_over_budget();
  report.foreseen_early = r.foreseen_early(), report.foreseen_guarded = r.foreseen_guarded();
  for (size_t c = 0; c < report.queued.size(); ++c) {
    if (r.queued() != nullptr && c < r.queued()->size()) report.queued[c] = r.queued()->Get(static_cast<uint32_t>(c));
    if (r.loading() != nullptr && c < r.loading()->size())
      report.loading[c] = r.loading()->Get(static_cast<uint32_t>(c));
  }
  report.hits = r.hits(), report.misses = r.misses();
  report.scrubbed_bytes = r.scrubbed_bytes(), report.scrub_mismatches = r.scrub_mismatches();
  return report;
}

}  // namespace

Result<StoreStatusReport> query_store(const std::string& endpoint, std::chrono::milliseconds timeout) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::DealerSocket::connect(endpoint));
  flatbuffers::FlatBufferBuilder b;
  MOESTRO_RETURN_IF_ERROR(
      socket.send(encode(b, wire::StoreBody::StoreStatusRequest, wire::CreateStoreStatusRequest(b, kClientProtocol))));
  MOESTRO_ASSIGN_OR_RETURN(const auto bytes, receive_reply(socket, wire::StoreBody::StoreStatus,
                                                           std::chrono::steady_clock::now() + timeout, endpoint));
  const wire::StoreStatus& s = *decode(bytes)->body_as_StoreStatus();
  StoreStatusReport report;
  report.epoch = s.epoch(), report.arena_bytes = s.arena_bytes(), report.used_bytes = s.used_bytes(),
  report.huge_bytes = s.huge_bytes();
  report.reader = text(s.reader()), report.policy = text(s.policy());
  report.pages = text(s.pages()), report.pages_mend = text(s.pages_mend());
  if (s.models() != nullptr)
    for (const auto* m : *s.models())
      report.models.push_back({text(m->name()), text(m->pack()), m->dense_bytes(), m->expert_bytes(), m->blobs(),
                               m->resident_experts(), m->experts(), m->workers(), m->used_bytes(),
                               m->guaranteed_bytes(), m->maximal_bytes(), m->retired(), m->layers(),
                               m->streamed_layers(), m->streamed_bytes()});
  if (s.workers() != nullptr)
    for (const auto* w : *s.workers())
      report.workers.push_back({w->slot(), text(w->client()), text(w->model()), w->fetches(), w->share_bytes(),
                                w->pinned(), w->hits(), w->misses()});
  report.fetches = s.fetches(), report.joined = s.joined(), report.loads = s.loads(), report.evictions = s.evictions();
  report.bytes_read = s.bytes_read(), report.retries = s.retries();
  report.bad_blobs = s.bad_blobs(), report.unreadable = s.unreadable();
  report.segments_emptied = s.segments_emptied();
  report.window_places = s.window_places(), report.streamed_loads = s.streamed_loads();
  report.streamed_loaded_bytes = s.streamed_loaded_bytes();
  report.queued = s.queued(), report.loading = s.loading();
  report.adopted = s.adopted(), report.adopted_bytes = s.adopted_bytes(), report.adopted_seconds = s.adopted_seconds();
  report.unchecked = s.unchecked(), report.damaged = s.damaged();
  report.memory_changed_s = s.memory_changed_s(), report.refused_s = s.refused_s();
  report.refused = s.refused(), report.resident_bytes = s.resident_bytes(), report.aliases = s.aliases(),
  report.reads_elsewhere = s.reads_elsewhere();
  if (const auto* w = s.warm_start())
    report.warm_start = {w->blobs(),    w->bytes(),   w->blobs_there(), w->bytes_there(),
                         w->left_out(), w->seconds(), w->running()};
  if (s.reading() != nullptr) report.reading = read_reading(*s.reading());
  return report;
}

namespace {

/// Beside the store's socket.
Result<std::string> read_change_key(const std::string& endpoint) {
  const std::filesystem::path file =
      std::filesystem::path(endpoint.substr(endpoint.find("//") + 2)).parent_path() / "store.key";
  std::ifstream in(file);
  std::string key;
  if (in >> key) return key;
  std::error_code ignored;
  if (!std::filesystem::exists(file.parent_path() / "store.sock", ignored))
    return unavailable("no store answers at " + endpoint + ": is moestro-store running with this run directory?");
  return invalid_argument(file.string() + " cannot be read: only the store's own user may change what it serves");
}

}  // namespace

Result<std::string> change_packs(const std::string& endpoint, PackChange change, const std::string& name,
                                 const std::string& pack, std::chrono::milliseconds timeout) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string key, read_change_key(endpoint));
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::DealerSocket::connect(endpoint));
  flatbuffers::FlatBufferBuilder b;
  const auto kind = static_cast<wire::PackChange>(change);
  MOESTRO_RETURN_IF_ERROR(socket.send(
      encode(b, wire::StoreBody::ChangePacks,
             wire::CreateChangePacksDirect(b, kClientProtocol, kind, name.c_str(), pack.c_str(), key.c_str()))));
  MOESTRO_ASSIGN_OR_RETURN(const auto bytes, receive_reply(socket, wire::StoreBody::PacksChanged,
                                                           std::chrono::steady_clock::now() + timeout, endpoint));
  return text(decode(bytes)->body_as_PacksChanged()->message());
}

}  // namespace moestro::store
