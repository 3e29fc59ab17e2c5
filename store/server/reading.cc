// Reading ahead, and what there is to say about reading.

#include "store/server/store_server.h"

namespace moestro::store {

std::optional<std::vector<uint32_t>> StoreServer::entries_of(const Worker& worker, const FetchRequest& request) {
  const Catalogue::Pack& pack = catalogue_.pack(worker.pack);
  std::vector<uint32_t> entries;
  if (request.blobs.size() > pack.blobs()) {
    refuse(worker.peer, exhausted("worker '" + worker.client + "' asked for " + std::to_string(request.blobs.size()) +
                                  " blobs at once, its model has " + std::to_string(pack.blobs())));
    return std::nullopt;
  }
  for (const uint32_t blob : request.blobs) {
    if (blob >= pack.manifest.blobs.size()) {
      refuse(worker.peer, invalid_argument("worker '" + worker.client + "' asked for blob " + std::to_string(blob) +
                                           " of " + std::to_string(pack.manifest.blobs.size())));
      return std::nullopt;
    }
    entries.push_back(pack.first_entry + blob);
  }
  return entries;
}

void StoreServer::answer(const std::string& peer, const ForeseeRequest& request) {
  const Worker* worker = holder(peer, request);
  if (worker == nullptr) return;
  const Catalogue::Pack& pack = catalogue_.pack(worker->pack);
  std::vector<ForeseenEntry> experts = request.blobs;
  for (ForeseenEntry& expert : experts) {
    if (expert.entry >= pack.blobs())
      return refuse(peer, invalid_argument("worker '" + worker->client + "' foresees blob " +
                                           std::to_string(expert.entry) + " of " + std::to_string(pack.blobs())));
    expert.entry += pack.first_entry;
  }
  perform(machine_->foresee(request.slot, {experts, request.scan, request.leads}));
}

ReadingFigures StoreServer::reading_figures() const {
  ReadingFigures f;
  for (size_t drive = 0; drive < loader_->drives().size(); ++drive) {
    const DriveThread& thread = *loader_->drives()[drive];
    const DriveCounters read = thread.counters();
    f.drives.push_back({catalogue_.files().drive_path(drive), std::string(thread.reader_name()),
                        thread.options().chunk_bytes, thread.options().depth,
                        drive < drive_speeds_.size() ? drive_speeds_[drive] : 0, read.bytes_read, read.retries,
                        thread.registered().is_ok()});
  }
  const StoreMachine::Counters& c = machine_->counters();
  f.prefetches = c.prefetches, f.prefetches_late = c.prefetches_late, f.prefetches_dropped = c.prefetches_dropped;
  f.foreseen_below_floor = c.below_floor, f.foreseen_over_budget = c.over_budget;
  f.foreseen_early = c.early, f.foreseen_guarded = c.guarded;
  const PrefetchLedger::Counters& ended = machine_->prefetch_counters();
  f.prefetches_used = ended.used, f.prefetches_wasted = ended.wasted, f.prefetch_wasted_bytes = ended.wasted_bytes;
  for (const ReadClass of : {ReadClass::kDemand, ReadClass::kPrefetch, ReadClass::kScrub}) {
    f.queued.push_back(static_cast<uint32_t>(machine_->queued(of)));
    f.loading.push_back(static_cast<uint32_t>(machine_->loading(of)));
  }
  f.hits = state_->hits_of_all(), f.misses = state_->misses_of_all();
  f.scrubbed_bytes = scrubber_.bytes(), f.scrub_mismatches = machine_->counters().scrub_mismatches;
  return f;
}

}  // namespace moestro::store
