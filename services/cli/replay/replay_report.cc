#include "services/cli/replay/replay_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

/// Experts that were copied while prompts were computed.
double copies(const tier::ReplayReport& r, const tier::ReplaySetup& setup) {
  return static_cast<double>(r.prompt_moved_bytes) / static_cast<double>(setup.expert_bytes);
}
double ratio(double a, double b) { return b > 0 ? a / b : 0; }
unsigned long long number(uint64_t count) { return count; }  // as printf wants it
double ms(Nanos time) { return std::chrono::duration<double, std::milli>(time).count(); }

/// What host memory did in all steps, prompts too.
tier::HostCounters host_in_all(const tier::ReplayReport& report) {
  tier::HostCounters all = report.host;
  return all += report.prompt_host;
}

/// Of decoding steps; prefetched experts and evictions of all steps. A stall is of the tier that what was waited for
/// had to come from.
nlohmann::json tiers_json(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  nlohmann::json tiers = nlohmann::json::object();
  if (!row.cpu)
    tiers["device"] = {{"hits", r.hits},
                       {"late", r.late},
                       {"misses", r.uses - r.hits - r.late},
                       {"moved_bytes", r.moved_bytes},
                       {"prefetched_wasted_bytes", r.wasted_bytes}};
  const tier::HostCounters &h = r.host, all = host_in_all(r);
  const double tokens = static_cast<double>(std::max<uint64_t>(1, r.tokens));
  tiers["dram"] = {{"experts", row.host->experts},
                   {"cache", row.host->cache},
                   {"hits", h.hits},
                   {"late", h.late},
                   {"misses", h.misses - h.late},
                   {"hit_rate", ratio(static_cast<double>(h.hits), static_cast<double>(h.uses()))},
                   {"prefetched", all.prefetched},
                   {"prefetched_used", all.prefetched_used},
                   {"prefetched_wasted", all.prefetched_wasted},
                   {"prefetched_wasted_bytes", h.wasted_bytes},
                   {"evictions", all.evictions},
                   {"stall_ms_per_token", ms(r.stall - r.drive_stall) / tokens}};
  tiers["nvme"] = {{"reads", h.reads},
                   {"read_bytes", h.read_bytes},
                   {"busy_ms", ms(h.drive_busy)},
                   {"prompt_read_bytes", r.prompt_host.read_bytes},
                   {"stall_ms_per_token", ms(r.drive_stall) / tokens}};
  return tiers;
}

/// What host memory and the drive did, and which of them was waited for. A CPU has no other memory, so its rows and
/// totals say the rest.
std::string host_text(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  const tier::HostCounters &h = r.host, all = host_in_all(r);
  const double tokens = static_cast<double>(std::max<uint64_t>(1, r.tokens));
  std::string text;
  if (!row.cpu) {
    const double uses = static_cast<double>(std::max<uint64_t>(1, h.uses()));
    text += printed("\n  host memory (%d experts, %s): %.1f %% hits, %.1f %% late; %llu prefetched, %llu of them "
                    "used; ",
                    row.host->experts, row.host->cache.c_str(), 100 * static_cast<double>(h.hits) / uses,
                    100 * static_cast<double>(h.late) / uses, number(all.prefetched), number(all.prefetched_used));
    text += printed("%llu evicted; %.1f %% of the bytes wasted\n", number(all.evictions),
                    100 * ratio(static_cast<double>(h.wasted_bytes), static_cast<double>(h.read_bytes)));
    text += printed("  stall/token: %.3f ms for the drive, %.3f ms for the link; ", ms(r.drive_stall) / tokens,
                    ms(r.stall - r.drive_stall) / tokens);
  } else {
    text += printed("\n  %llu evicted; ", number(all.evictions));
  }
  return text + printed("the drive read %s a token and was busy for %.0f %% of the time\n",
                        config::readable_size(h.read_bytes / std::max<uint64_t>(1, r.tokens)).c_str(),
                        100 * ratio(ms(h.drive_busy), ms(r.time)));
}

double share_of(uint64_t part, uint64_t all) { return ratio(static_cast<double>(part), static_cast<double>(all)); }

/// The penalty of the oracle, which has full copies only, is its misses.
nlohmann::json mixed_json(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  return {{"low_slots", row.setup.low_slots},
          {"low_share", share_of(r.low, r.choices)},
          {"skipped_share", share_of(r.skipped, r.choices)},
          {"penalty", r.penalty},
          {"penalty_on_demand_lru", row.on_demand.penalty},
          {"penalty_full_only", row.full_only->penalty},
          {"penalty_belady", row.belady.penalty},
          {"time_ms_per_token_full_only", 1e3 * row.full_only->time_per_token_s()},
          {"stall_ms_per_token_full_only", 1e3 * row.full_only->stall_per_token_s()},
          {"speed_up_over_full_only", ratio(row.full_only->time_per_token_s(), r.time_per_token_s())}};
}

std::string mixed_text(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  return printed(
      "  of the choices %.1f %% by low copies (%d slots), %.1f %% by none; speed-up over full copies only: %.2f\n"
      "  penalty (misses by their bytes): %.0f; on demand with lru %.0f, full copies only %.0f, belady %.0f\n",
      100 * share_of(r.low, r.choices), row.setup.low_slots, 100 * share_of(r.skipped, r.choices),
      ratio(row.full_only->time_per_token_s(), r.time_per_token_s()), r.penalty, row.on_demand.penalty,
      row.full_only->penalty, row.belady.penalty);
}

}  // namespace

double ReplayRow::stall_left() const { return ratio(report.stall_per_token_s(), on_demand.stall_per_token_s()); }
double ReplayRow::gap_closed() const {
  return ratio(on_demand.stall_per_token_s() - report.stall_per_token_s(),
               on_demand.stall_per_token_s() - clairvoyant.report.stall_per_token_s());
}
double ReplayRow::speed_up() const { return ratio(on_demand.time_per_token_s(), report.time_per_token_s()); }
double ReplayRow::speed_up_best() const {
  return ratio(on_demand.time_per_token_s(), clairvoyant.report.time_per_token_s());
}
double ReplayRow::bytes_ratio() const {
  return ratio(static_cast<double>(report.moved_bytes), static_cast<double>(on_demand.moved_bytes));
}
double ReplayRow::wasted_share() const {
  return ratio(static_cast<double>(report.wasted_bytes), static_cast<double>(report.moved_bytes));
}

Nanos ReplayRow::first_token_quantile(double quantile) const {
  if (first_token.empty()) return Nanos{0};
  std::vector<Nanos> sorted = first_token;
  std::ranges::sort(sorted);
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

nlohmann::json row_json(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  const tier::TierCounters& c = r.counters;
  nlohmann::json layers = nlohmann::json::array();
  for (size_t l = 0; l < r.layer_uses.size(); ++l)
    layers.push_back(ratio(static_cast<double>(r.layer_hits[l]), static_cast<double>(r.layer_uses[l])));
  nlohmann::json json{
      {"cache", row.cache},
      {"predict", row.predict},
      {"slots", row.setup.slots},
      {"slots_share", row.share},
      {"link_ratio", row.link_ratio},
      {"batch", row.setup.batch},
      {"tokens", r.tokens},
      {"uses", r.uses},
      {"hits", r.hits},
      {"late", r.late},
      {"hit_rate", r.hit_rate()},
      {"hit_rate_by_layer", layers},
      {"hit_rate_by_request", r.request_hit_rate},
      {"stall_ms_per_token", 1e3 * r.stall_per_token_s()},
      {"time_ms_per_token", 1e3 * r.time_per_token_s()},
      {"moved_bytes", r.moved_bytes},
      {"wasted_bytes", r.wasted_bytes},
      {"wasted_share", row.wasted_share()},
      {"prefetched", c.prefetched},
      {"prefetched_used", c.prefetched_used},
      {"dropped_prefetches", c.dropped_prefetches},
      {"below_floor", c.below_floor},
      {"throttled", c.throttled},
      {"over_budget", c.over_budget},
      {"guarded", c.guarded},
      {"early", c.early},
      {"needless", c.needless},
      {"evictions", c.evictions},
      {"prompt",
       {{"steps", r.prompt_steps},
        {"tokens", r.prompt_tokens},
        {"time_ms", ms(r.prompt_time)},
        {"stall_ms", ms(r.prompt_stall)},
        {"moved_bytes", r.prompt_moved_bytes},
        {"uses", r.prompt_uses},
        {"copies", copies(r, row.setup)},
        {"kept_share", r.prompt_kept_share()},
        {"hit_rate_after", r.after_hit_rate()}}},
      {"on_demand_lru",
       {{"hit_rate", row.on_demand.hit_rate()},
        {"stall_ms_per_token", 1e3 * row.on_demand.stall_per_token_s()},
        {"time_ms_per_token", 1e3 * row.on_demand.time_per_token_s()},
        {"moved_bytes", row.on_demand.moved_bytes}}},
      {"belady", {{"hit_rate", row.belady.hit_rate()}, {"stall_ms_per_token", 1e3 * row.belady.stall_per_token_s()}}},
      {"clairvoyant",
       {{"hit_rate", row.clairvoyant.report.hit_rate()},
        {"stall_ms_per_token", 1e3 * row.clairvoyant.report.stall_per_token_s()},
        {"time_ms_per_token", 1e3 * row.clairvoyant.report.time_per_token_s()},
        {"horizon", row.clairvoyant.horizon},
        {"total_time_ms", ms(row.clairvoyant.total_time)},
        {"least_time_ms", ms(row.clairvoyant.least_time)}}},
      {"stall_left", row.stall_left()},
      {"gap_closed", row.gap_closed()},
      {"speed_up", row.speed_up()},
      {"speed_up_best", row.speed_up_best()},
      {"bytes_ratio", row.bytes_ratio()}};
  if (!row.first_token.empty())
    json["first_token_ms"] = {{"p50", ms(row.first_token_quantile(0.5))}, {"p99", ms(row.first_token_quantile(0.99))}};
  if (row.host) json["tiers"] = tiers_json(row);
  if (row.full_only) json["mixed"] = mixed_json(row);
  if (row.setup.times.cpu_ratio > 0) json["cpu_share"] = share_of(r.on_cpu, r.choices);
  return json;
}

std::string row_text(const ReplayRow& row) {
  const tier::ReplayReport& r = row.report;
  const auto size = [](uint64_t bytes) { return config::readable_size(bytes); };
  std::string text = printed(
      row.cpu ? "%s + %s, host memory for %d experts (%.0f %% of all), one read takes %.2f x one expert's computing\n\n"
              : "%s + %s, %d slots (%.0f %% of the experts), one copy takes %.2f x one expert's computing\n\n",
      row.cache.c_str(), row.predict.c_str(), row.setup.slots, 100 * row.share, row.link_ratio);
  text += printed("                       hits   late   stall/token    time/token  %5s/token   wasted\n",
                  row.cpu ? "read" : "moved");
  const auto line = [&](const char* name, const tier::ReplayReport& of) {
    const uint64_t tokens = std::max<uint64_t>(1, of.tokens);
    text += printed(
        "  %-18s %6.1f %% %5.1f %% %9.3f ms %10.3f ms %12s %7.1f %%\n", name, 100 * of.hit_rate(),
        of.uses ? 100.0 * static_cast<double>(of.late) / static_cast<double>(of.uses) : 0, 1e3 * of.stall_per_token_s(),
        1e3 * of.time_per_token_s(), size(of.moved_bytes / tokens).c_str(),
        of.moved_bytes ? 100.0 * static_cast<double>(of.wasted_bytes) / static_cast<double>(of.moved_bytes) : 0);
  };
  line("this", r);
  line("on demand, lru", row.on_demand);
  const bool two_tiers = row.host && !row.cpu;
  if (!two_tiers) line("on demand, belady", row.belady);
  line(two_tiers ? "clairvoyant*" : "clairvoyant", row.clairvoyant.report);
  if (two_tiers) text += "  * as if host memory had every expert\n";
  if (row.full_only) line("full copies only", *row.full_only);
  text += row.host ? host_text(row) : "\n";
  if (row.full_only) text += mixed_text(row);
  if (row.setup.times.cpu_ratio > 0)
    text += printed("  the CPU computed %.1f %% of the choices\n", 100 * share_of(r.on_cpu, r.choices));
  text +=
      printed("  %llu tokens decoded, %llu of prompts; %llu prefetched, %llu of them used, %llu dropped on the way\n",
              number(r.tokens), number(r.prompt_tokens),
              number(r.counters.prefetched),
              number(r.counters.prefetched_used),
              number(r.counters.dropped_prefetches));
  if (r.prompt_steps > 0)
    text += printed(
        "  prompts: %llu steps used %llu experts of a layer and %s %.0f, %.2f each; %.0f %% of what lay in %s "
        "stayed there; hit rate of the %d decoding steps after one %.1f %%\n",
        number(r.prompt_steps), number(r.prompt_uses), row.cpu ? "read" : "copied", copies(r, row.setup),
        ratio(copies(r, row.setup), static_cast<double>(r.prompt_uses)), 100 * r.prompt_kept_share(),
        row.cpu ? "host memory" : "slots", tier::ReplayReport::kAfterPrompt, 100 * r.after_hit_rate());
  if (row.queued)
    text += printed("  time to first token, waiting included: median %.0f ms, p99 %.0f ms\n",
                    ms(row.first_token_quantile(0.5)), ms(row.first_token_quantile(0.99)));
  text += printed("  speed-up over on demand + lru: %.2f of %.2f possible%s; gap in stall closed: %.0f %%\n",
                  row.speed_up(), row.speed_up_best(), two_tiers ? " without a drive" : "", 100 * row.gap_closed());
  return text;
}

std::string table_text(const std::vector<ReplayRow>& rows) {
  const bool cpu = !rows.empty() && rows.front().cpu;
  std::string text = printed(
      "| %s | %s / compute | hit rate | lru | belady | clairvoyant | stall, of lru's | gap closed | bytes, of lru's | "
      "wasted | speed-up | possible |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
      cpu ? "in memory" : "slots", cpu ? "read" : "copy");
  for (const ReplayRow& row : rows)
    text += printed(
        "| %.0f %% | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f %% | %.0f %% | %.2f | %.1f %% | %.2f | %.2f |\n",
        100 * row.share, row.link_ratio, 100 * row.report.hit_rate(), 100 * row.on_demand.hit_rate(),
        100 * row.belady.hit_rate(), 100 * row.clairvoyant.report.hit_rate(), 100 * row.stall_left(),
        100 * row.gap_closed(), row.bytes_ratio(), 100 * row.wasted_share(), row.speed_up(), row.speed_up_best());
  return text;
}

}  // namespace moestro::cli
