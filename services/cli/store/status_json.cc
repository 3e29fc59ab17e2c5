#include "services/cli/store/status_json.h"

#include <nlohmann/json.hpp>

namespace moestro::cli {
namespace {

using nlohmann::json;

json by_class(const std::array<uint32_t, 3>& counts) {
  return {{"demand", counts[0]}, {"prefetch", counts[1]}, {"scrub", counts[2]}};
}

json models_json(const store::StoreStatusReport& s) {
  json models = json::array();
  for (const auto& m : s.models)
    models.push_back({{"name", m.name},
                      {"pack", m.pack},
                      {"dense_bytes", m.dense_bytes},
                      {"expert_bytes", m.expert_bytes},
                      {"experts", m.experts},
                      {"resident_experts", m.resident_experts},
                      {"workers", m.workers},
                      {"retired", m.retired},
                      {"used_bytes", m.used_bytes},
                      {"guaranteed_bytes", m.guaranteed_bytes},
                      {"maximal_bytes", m.maximal_bytes},
                      {"layers", m.layers},
                      {"streamed_layers", m.streamed_layers},
                      {"streamed_bytes", m.streamed_bytes}});
  return models;
}

json workers_json(const store::StoreStatusReport& s) {
  json workers = json::array();
  for (const auto& w : s.workers)
    workers.push_back({{"slot", w.slot},
                       {"name", w.client},
                       {"model", w.model},
                       {"hits", w.hits},
                       {"misses", w.misses},
                       {"pinned", w.pinned},
                       {"share_bytes", w.share_bytes}});
  return workers;
}

json drives_json(const store::StoreReadingReport& r) {
  json drives = json::array();
  for (const auto& d : r.drives)
    drives.push_back({{"path", d.path},
                      {"reader", d.reader},
                      {"registered", d.registered},
                      {"chunk_bytes", d.chunk_bytes},
                      {"depth", d.depth},
                      {"bytes_per_s_at_start", d.bytes_per_s},
                      {"bytes_read", d.bytes_read},
                      {"retries", d.retries}});
  return drives;
}

}  // namespace

json status_json(const store::StoreStatusReport& s) {
  const auto& r = s.reading;
  const store::StoreWarmStartReport& w = s.warm_start;
  return {{"arena_bytes", s.arena_bytes},
          {"used_bytes", s.used_bytes},
          {"resident_bytes", s.resident_bytes},
          {"huge_bytes", s.huge_bytes},
          {"aliases", s.aliases},
          {"policy", s.policy},
          {"reader", s.reader},
          {"hits", r.hits},
          {"misses", r.misses},
          {"fetches", s.fetches},
          {"joined", s.joined},
          {"loads", s.loads},
          {"evictions", s.evictions},
          {"segments_emptied", s.segments_emptied},
          {"window_places", s.window_places},
          {"streamed_loads", s.streamed_loads},
          {"streamed_loaded_bytes", s.streamed_loaded_bytes},
          {"bytes_read", s.bytes_read},
          {"retries", s.retries},
          {"bad_blobs", s.bad_blobs},
          {"unreadable_blobs", s.unreadable},
          {"reads_elsewhere", s.reads_elsewhere},
          {"refused", s.refused},
          {"refused_s", s.refused_s < 0 ? json() : json(s.refused_s)},
          {"queued", s.queued},
          {"loading", s.loading},
          {"queued_by_class", by_class(r.queued)},
          {"loading_by_class", by_class(r.loading)},
          {"prefetches",
           {{"loaded", r.prefetches},
            {"used", r.prefetches_used},
            {"late", r.prefetches_late},
            {"wasted", r.prefetches_wasted},
            {"wasted_bytes", r.prefetch_wasted_bytes},
            {"dropped", r.prefetches_dropped},
            {"below_floor", r.foreseen_below_floor},
            {"over_budget", r.foreseen_over_budget},
            {"early", r.foreseen_early},
            {"guarded", r.foreseen_guarded}}},
          {"scrubbed_bytes", r.scrubbed_bytes},
          {"scrub_mismatches", r.scrub_mismatches},
          {"memory_changed_s", s.memory_changed_s < 0 ? json() : json(s.memory_changed_s)},
          {"adopted", s.adopted},
          {"adopted_bytes", s.adopted_bytes},
          {"adopted_seconds", s.adopted_seconds},
          {"unchecked", s.unchecked},
          {"damaged", s.damaged},
          {"warm_start",
           {{"running", w.running},
            {"blobs", w.blobs},
            {"bytes", w.bytes},
            {"blobs_there", w.blobs_there},
            {"bytes_there", w.bytes_there},
            {"left_out", w.left_out},
            {"seconds", w.seconds}}},
          {"models", models_json(s)},
          {"workers", workers_json(s)},
          {"drives", drives_json(r)}};
}

}  // namespace moestro::cli
