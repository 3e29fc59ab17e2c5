// The memory tiers in /v1/moestro/status.

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/units.h"
#include "orchestrator/api/tier_metrics.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {


json part(uint64_t of, uint64_t all) {
  return all > 0 ? json(static_cast<double>(of) / static_cast<double>(all)) : json();
}

json recent_json(const RecentUses& r) {
  if (r.uses == 0) return nullptr;
  return {{"uses", r.uses},
          {"realised", part(r.hits, r.uses)},
          {"lru", part(r.lru_hits, r.uses)},
          {"belady", part(r.belady_hits, r.uses)}};
}

json totals_json(const DeviceTotals& d) {
  json totals{{"hit_rate", part(d.use.hits, d.use.hits + d.use.misses)},
              {"prefetched_wasted_bytes", d.wasted_bytes},
              {"moved_bytes", d.moved_bytes},
              {"staged_bytes", d.staged_bytes},
              {"link_busy_seconds", seconds_of(d.link_busy_us)},
              {"step_seconds", seconds_of(d.step_us)},
              {"stall_seconds", seconds_of(d.stall_us)},
              {"host_experts", d.work.host_experts},
              {"host_rows", d.work.host_rows},
              {"rewinds", d.work.rewinds},
              {"kv_in_bytes", d.work.kv_in_bytes},
              {"kv_out_bytes", d.work.kv_out_bytes}};
  for (const LayerFigure& figure : kByLayer) totals[figure.name] = d.use.*figure.value;
  return totals;
}

json layers_json(const std::vector<DeviceUse>& layers) {
  json lists = json::object();
  for (const LayerFigure& figure : kByLayer) {
    json& list = lists[figure.name] = json::array();
    for (const DeviceUse& layer : layers) list.push_back(layer.*figure.value);
  }
  return lists;
}

json device_json(const ControlSnapshot& c) {
  const DeviceRoom room = room_of(c);
  json device = totals_json(c.device);
  device.update({{"workers", room.workers},
                 {"slots", room.slots},
                 {"experts", room.resident},
                 {"capacity_bytes", room.capacity_bytes},
                 {"used_bytes", room.used_bytes},
                 {"resident_bytes", room.used_bytes},
                 {"recent", recent_json(room.recent)},
                 {"layers", layers_json(c.device_layers)}});
  return device;
}

json copies_json(const std::vector<CopyCounts>& layers) {
  json lists{{"choices", json::array()}, {"low", json::array()}, {"skipped", json::array()}};
  for (const CopyCounts& l : layers)
    lists["choices"].push_back(l.choices), lists["low"].push_back(l.low), lists["skipped"].push_back(l.skipped);
  return lists;
}

}  // namespace

json mixed_status(const ControlSnapshot& c) {
  json mixed{{"choices", c.copies.choices}, {"low", c.copies.low}, {"skipped", c.copies.skipped}};
  if (!c.device_copies.empty()) mixed["layers"]["device"] = copies_json(c.device_copies);
  if (!c.dram_copies.empty()) mixed["layers"]["dram"] = copies_json(c.dram_copies);
  return mixed;
}

json tiers_status(const ControlSnapshot& c, const std::optional<StoreFigures>& store) {
  json tiers;
  json dram{{"hits", c.dram_hits},
            {"misses", c.dram_misses},
            {"hit_rate", part(c.dram_hits, c.dram_hits + c.dram_misses)},
            {"fetched_bytes", c.dram_fetched_bytes}};
  if (store) {
    const StoreFigures& s = *store;
    dram.update({{"capacity_bytes", s.arena_bytes},
                 {"used_bytes", s.used_bytes},
                 {"resident_bytes", s.resident_bytes},
                 {"late", s.joined},
                 {"prefetched", s.prefetches},
                 {"prefetched_used", s.prefetches_used},
                 {"prefetched_wasted", s.prefetches_wasted},
                 {"prefetched_wasted_bytes", s.prefetch_wasted_bytes},
                 {"evictions", s.evictions}});
    tiers["nvme"] = {
        {"used_bytes", pack_bytes(s)}, {"read_bytes", s.bytes_read}, {"reads", s.loads}, {"retries", s.retries}};
  }
  tiers["dram"] = std::move(dram);
  if (!c.device_layers.empty()) tiers["device"] = device_json(c);
  return tiers;
}

json device_status(const ControlSnapshot::Worker& worker) {
  if (!worker.has_device()) return nullptr;
  json device = totals_json(worker.device_totals);
  device.update({{"slots", worker.device_slots},
                 {"slot_bytes", worker.device_slot_bytes},
                 {"experts", worker.device_resident},
                 {"recent", recent_json(worker.recent)}});
  return device;
}

json experts_status(const ExpertShares& shares) {
  json rows = json::array();
  for (int32_t layer = 0; layer < shares.layers; ++layer) {
    json& row = rows.emplace_back(json::array());
    for (int32_t expert = 0; expert < shares.experts; ++expert)
      row.push_back(
          std::round(static_cast<double>(shares.cells[static_cast<size_t>(layer) * static_cast<size_t>(shares.experts) +
                                                      static_cast<size_t>(expert)]) *
                     1e4) /
          1e4);
  }
  return {{"layers", shares.layers},
          {"experts", shares.experts},
          {"half_life_s", ExpertUse::kHalfLife.count()},
          {"shares", std::move(rows)}};
}

}  // namespace moestro::orchestrator
