#include "services/cli/top/device_look.h"

#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/top/rates.h"
#include "services/cli/top/view.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

template <typename N>
double growth(N before, N now) {
  return now > before ? static_cast<double>(now - before) : 0;
}

/// Negative, which is shown as "-", where there is no whole.
double part(double of, double whole) { return whole > 0 ? of / whole : -1; }

}  // namespace

DeviceLook read_device(const json& tier) {
  DeviceLook d;
  d.workers = count_or(tier, "workers");
  d.slots = count_or(tier, "slots"), d.experts = count_or(tier, "experts");
  d.hits = count_or(tier, "hits"), d.misses = count_or(tier, "misses");
  d.prefetched = count_or(tier, "prefetched"), d.prefetched_used = count_or(tier, "prefetched_used"),
  d.prefetched_wasted = count_or(tier, "prefetched_wasted");
  d.host_experts = count_or(tier, "host_experts"), d.host_rows = count_or(tier, "host_rows"),
  d.rewinds = count_or(tier, "rewinds");
  d.link_busy_s = number_or(tier, "link_busy_seconds", 0), d.step_s = number_or(tier, "step_seconds", 0),
  d.stall_s = number_or(tier, "stall_seconds", 0);
  if (!tier.is_object() || !tier.contains("recent")) return d;
  const json& recent = tier.at("recent");
  d.realised = number_or(recent, "realised", -1), d.lru = number_or(recent, "lru", -1),
  d.belady = number_or(recent, "belady", -1);
  return d;
}

std::vector<Line> device_lines(const DeviceLook& before, const DeviceLook& now, double seconds) {
  if (now.workers == 0) return {};
  const double known = seconds > 0 ? 1 : 0;
  const double hits = known * growth(before.hits, now.hits), misses = known * growth(before.misses, now.misses);
  const double busy = part(growth(before.link_busy_s, now.link_busy_s), seconds * static_cast<double>(now.workers));
  const double stalled = part(known * growth(before.stall_s, now.stall_s), growth(before.step_s, now.step_s));
  const auto of_ahead = [&](uint64_t n) {
    return percent(part(static_cast<double>(n), static_cast<double>(now.prefetched)));
  };
  const auto rate = [&](uint64_t from, uint64_t to) {
    return readable_count(seconds > 0 ? growth(from, to) / seconds : 0);
  };
  std::vector<Line> lines(3, figures(""));
  lines[0] = figures("device");
  lines[0].add(printed("%s of %s/s were there; of late %s, LRU %s, Belady %s", percent(hit_share(hits, misses)).c_str(),
                       readable_count(seconds > 0 ? (hits + misses) / seconds : 0).c_str(),
                       percent(now.realised).c_str(), percent(now.lru).c_str(), percent(now.belady).c_str()));
  lines[1].add(printed("link %s busy, stalled %s; %llu of %llu slots hold an expert", percent(busy).c_str(),
                       percent(stalled).c_str(), static_cast<unsigned long long>(now.experts),
                       static_cast<unsigned long long>(now.slots)));
  lines[2].add(printed("brought ahead since start %s: %s used, %s wasted",
                       readable_count(static_cast<double>(now.prefetched)).c_str(),
                       of_ahead(now.prefetched_used).c_str(), of_ahead(now.prefetched_wasted).c_str()));
  if (now.host_experts + now.rewinds > 0)
    lines.push_back(figures("").add(printed(
        "on the CPU %s experts/s, %s rows/s; layers queued again %s/s",
        rate(before.host_experts, now.host_experts).c_str(), rate(before.host_rows, now.host_rows).c_str(),
        rate(before.rewinds, now.rewinds).c_str())));
  if (now.dense_bytes > 0)
    lines.push_back(figures("").add(printed(
        "dense weights take turns: %s/s over the link, stalled for them %s",
        config::readable_size(
            static_cast<uint64_t>(seconds > 0 ? growth(before.dense_bytes, now.dense_bytes) / seconds : 0)).c_str(),
        percent(part(known * growth(before.dense_stall_s, now.dense_stall_s), growth(before.step_s, now.step_s)))
            .c_str())));
  return lines;
}

}  // namespace moestro::cli
