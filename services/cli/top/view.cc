#include "services/cli/top/view.h"

#include <algorithm>
#include <iterator>

#include "common/config/units.h"
#include "common/news.h"
#include "services/cli/common/output.h"
#include "services/cli/top/text_width.h"

namespace moestro::cli {
namespace {

using config::readable_size;
using store::StoreStatusReport;

constexpr size_t kBar = 28;
constexpr size_t kUsualColumns = 80, kNameMin = 8;
constexpr size_t kMapRowsMin = 4, kMapRowsUnbound = 24;  ///< in a terminal that is too low, and where there is none

std::string share_of(uint64_t part, uint64_t whole) {
  return percent(whole == 0 ? -1 : static_cast<double>(part) / static_cast<double>(whole));
}
/// What changed in memory was read again; for a while it says that the memory is not to be trusted.
bool changed_lately(const StoreStatusReport& s) { return is_news(s.memory_changed_s); }
std::string or_none(uint64_t bytes) { return bytes == 0 ? "-" : readable_size(bytes); }
std::string speed(double bytes_per_s) { return readable_size(static_cast<uint64_t>(bytes_per_s)) + "/s"; }

/// Full to the share in use, and within it to the share that is resident.
std::string bar(const StoreStatusReport& s) {
  std::string drawn(kBar, '.');
  if (s.arena_bytes == 0) return drawn;
  const auto cells = [&](uint64_t bytes) {
    return std::min<size_t>(
        kBar, static_cast<size_t>(static_cast<double>(bytes) / static_cast<double>(s.arena_bytes) * kBar + 0.5));
  };
  std::fill_n(drawn.begin(), cells(s.used_bytes), '-');
  std::fill_n(drawn.begin(), std::min(cells(s.resident_bytes), cells(s.used_bytes)), '#');
  return drawn;
}

void add_summary(const StoreStatusReport& s, const StoreRates& r, std::vector<Line>& page) {
  page.push_back(figures("arena"));
  page.back().add(printed("%s [%s] %s used, %s resident", readable_size(s.arena_bytes).c_str(), bar(s).c_str(),
                          share_of(s.used_bytes, s.arena_bytes).c_str(), readable_size(s.resident_bytes).c_str()));
  page.push_back(figures(""));
  page.back().add(visible(printed("policy %s, %s, %s of it huge pages", s.policy.c_str(), s.reader.c_str(),
                                    share_of(s.huge_bytes, s.arena_bytes).c_str())));
  page.push_back(figures("experts"));
  page.back().add(printed("%s of %s/s were there; %s misses/s; since start %s",
                          percent(hit_share(r.hits, r.misses)).c_str(), readable_count(r.hits + r.misses).c_str(),
                          readable_count(r.misses).c_str(),
                          percent(hit_share(static_cast<double>(s.reading.hits),
                                            static_cast<double>(s.reading.misses))).c_str()));
  page.push_back(figures("reads"));
  page.back().add(printed("%s; %s loads/s, %s evictions/s; %llu retries, ", speed(r.read_bytes).c_str(),
                          readable_count(r.loads).c_str(), readable_count(r.evictions).c_str(),
                          static_cast<unsigned long long>(s.retries)));
  page.back().add(std::to_string(s.unreadable) + " bad", s.unreadable > 0 ? Tone::kBad : Tone::kPlain);
  if (s.window_places > 0) {
    uint64_t layers = 0, streamed = 0;
    for (const auto& m : s.models) layers += m.layers, streamed += m.streamed_layers;
    page.push_back(figures("dense").add(std::to_string(streamed) + " of " + counted(layers, "layer") +
                                        " take turns in " + counted(s.window_places, "place") + ": " +
                                        speed(r.streamed_bytes)));
  }
  const auto& q = s.reading;
  page.push_back(figures("queue"));
  page.back().add(printed("demand %u (%u being read), prefetch %u (%u), scrub %u (%u)", q.queued[0], q.loading[0],
                          q.queued[1], q.loading[1], q.queued[2], q.loading[2]));
}

/// The columns of a table's names: as many as a page of the usual width has, fewer and more as the terminal has, but no
/// more than the longest name takes.
template <typename Items, typename NameOf>
size_t name_columns(const Items& items, NameOf name_of, size_t usual, size_t columns) {
  size_t longest = usual;
  for (const auto& item : items) longest = std::max(longest, display_width(visible(name_of(item))));
  const size_t there = usual + columns > kUsualColumns + kNameMin ? usual + columns - kUsualColumns : kNameMin;
  return std::min(there, longest);
}

std::string cell(const std::string& name, size_t columns) { return padded(shortened(name, columns), columns); }

void add_models(const StoreStatusReport& s, size_t columns, std::vector<Line>& page) {
  const auto name_of = [](const auto& m) { return m.name + (m.retired ? " (going)" : ""); };
  const size_t wide = name_columns(s.models, name_of, 22, columns);
  page.push_back(row(cell("MODEL", wide) + printed(" %15s %9s %10s %9s %4s %5s", "EXPERTS THERE", "MEMORY",
                                                   "GUARANTEED", "AT MOST", "WRKS", "HITS"),
                     Tone::kStrong));
  for (const auto& m : s.models) {
    const ModelTraffic traffic = traffic_of(s, m.name);
    const double hits = hit_share(static_cast<double>(traffic.hits), static_cast<double>(traffic.misses));
    page.push_back(row(cell(name_of(m), wide) +
                       printed(" %15s %9s %10s %9s %4u %5s",
                               (std::to_string(m.resident_experts) + " of " + std::to_string(m.experts)).c_str(),
                               readable_size(m.used_bytes).c_str(), or_none(m.guaranteed_bytes).c_str(),
                               or_none(m.maximal_bytes).c_str(), m.workers, percent(hits).c_str())));
  }
}

void add_workers(const StoreStatusReport& s, const StoreRates& r, size_t columns, std::vector<Line>& page) {
  constexpr size_t kWorker = 18, kModel = 21;
  const size_t wide = name_columns(s.workers, [](const auto& w) { return w.client; }, kWorker, columns);
  const size_t model = name_columns(s.workers, [](const auto& w) { return w.model; }, kModel, columns + kWorker - wide);
  page.push_back(row(cell("WORKER", wide) + " " + cell("OF MODEL", model) +
                         printed(" %8s %8s %5s %6s %8s", "HITS/s", "MISSES/s", "HITS", "PINNED", "SHARE"),
                     Tone::kStrong));
  for (size_t i = 0; i < s.workers.size(); ++i) {
    const auto& w = s.workers[i];
    const double hits = hit_share(static_cast<double>(w.hits), static_cast<double>(w.misses));
    page.push_back(row(cell(w.client, wide) + " " + cell(w.model, model) +
                       printed(" %8s %8s %5s %6u %8s", readable_count(r.workers[i].hits).c_str(),
                               readable_count(r.workers[i].misses).c_str(), percent(hits).c_str(), w.pinned,
                               readable_size(w.share_bytes).c_str())));
  }
}

void add_drives(const StoreStatusReport& s, const StoreRates& r, size_t columns, std::vector<Line>& page) {
  const size_t wide = name_columns(s.reading.drives, [](const auto& d) { return d.path; }, 29, columns);
  page.push_back(row(cell("DRIVE", wide) + printed(" %12s %12s %9s %5s %8s", "NOW", "AT START", "CHUNK", "DEPTH",
                                                   "RETRIES"),
                     Tone::kStrong));
  for (size_t i = 0; i < s.reading.drives.size(); ++i) {
    const auto& d = s.reading.drives[i];
    page.push_back(row(cell(d.path, wide) +
                       printed(" %12s %12s %9s %5u %8llu", speed(r.drive_bytes[i]).c_str(),
                               d.bytes_per_s == 0 ? "-" : speed(static_cast<double>(d.bytes_per_s)).c_str(),
                               readable_size(d.chunk_bytes).c_str(), d.depth,
                               static_cast<unsigned long long>(d.retries))));
  }
}

void add_rest(const StoreStatusReport& s, std::vector<Line>& page) {
  const auto n = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  const auto& r = s.reading;
  page.push_back(figures("ahead"));
  page.back().add(printed("%llu prefetch%s: %llu used, %llu late, %llu wasted, %llu dropped; %s read for nothing",
                          n(r.prefetches), r.prefetches == 1 ? "" : "es", n(r.prefetches_used), n(r.prefetches_late),
                          n(r.prefetches_wasted), n(r.prefetches_dropped),
                          readable_size(r.prefetch_wasted_bytes).c_str()));
  if (r.foreseen_below_floor + r.foreseen_over_budget + r.foreseen_early + r.foreseen_guarded > 0)
    page.push_back(figures("").add(
        printed("not read ahead: %llu unlikely, %llu too late for the drive, %llu early, %llu for want of anything "
                "used later",
                n(r.foreseen_below_floor), n(r.foreseen_over_budget), n(r.foreseen_early), n(r.foreseen_guarded))));
  page.push_back(figures("scrub"));
  page.back().add(printed("%s compared again, ", readable_size(r.scrubbed_bytes).c_str()));
  page.back().add(std::to_string(r.scrub_mismatches) + " changed", changed_lately(s) ? Tone::kBad : Tone::kPlain);
  if (const auto& w = s.warm_start; w.blobs > 0)
    page.push_back(figures("warm").add(
        printed("%s of %s, %llu of %s, in %.1f s; %llu left out%s", readable_size(w.bytes_there).c_str(),
                readable_size(w.bytes).c_str(), n(w.blobs_there), counted(w.blobs, "blob").c_str(), w.seconds,
                n(w.left_out), w.running ? "; reading" : "")));
  if (s.adopted > 0) {
    page.push_back(figures("adopted"));
    page.back().add(printed("%s (%s) in %.1f s; %llu to check, ", counted(s.adopted, "blob").c_str(),
                            readable_size(s.adopted_bytes).c_str(), s.adopted_seconds, n(s.unchecked)));
    page.back().add(std::to_string(s.damaged) + " damaged",
                    s.damaged > 0 && changed_lately(s) ? Tone::kBad : Tone::kPlain);
  }
  page.push_back(figures("shared"));
  page.back().add(printed("%s in bytes of another; %llu read from another pack", counted(s.aliases, "blob").c_str(),
                          n(s.reads_elsewhere)));
  if (s.refused > 0)
    page.push_back(figures("refused", is_news(s.refused_s) ? Tone::kWarn : Tone::kQuiet)
                       .add(counted(s.refused, "message") + ": the store's log names them"));
}

/// The map of experts in as many lines as the terminal has left beside so many others.
std::vector<Line> map_that_fits(const ExpertMap& experts, const TerminalSize& size, size_t others) {
  const size_t least = std::min(kMapRowsMin, experts.layers);
  size_t rows = std::min(experts.layers, size.rows == 0 ? kMapRowsUnbound : std::max(size.rows, least));
  while (true) {
    std::vector<Line> lines = fitted(expert_map_lines(experts, size.columns, rows), size.columns);
    if (size.rows == 0 || rows <= least || others + lines.size() <= size.rows) return lines;
    --rows;
  }
}

}  // namespace

std::string percent(double share) {
  return share < 0 ? "-" : printed(share > 0.995 && share < 1 ? "%.1f %%" : "%.0f %%", 100 * share);
}

std::vector<Line> top_page(const std::vector<Line>& server, const ExpertMap& experts, const StoreLook& now,
                           const StoreRates& rates, const TerminalSize& size) {
  std::vector<Line> page = server;
  page.emplace_back();
  add_summary(now.status, rates, page);
  page = fitted(page, size.columns);
  std::vector<Line> tables(1);
  add_models(now.status, size.columns, tables);
  tables.emplace_back();
  add_workers(now.status, rates, size.columns, tables);
  tables.emplace_back();
  add_drives(now.status, rates, size.columns, tables);
  tables.emplace_back();
  add_rest(now.status, tables);
  tables = fitted(tables, size.columns);
  if (auto map = map_that_fits(experts, size, page.size() + 1 + tables.size()); !map.empty()) {
    page.emplace_back();
    std::ranges::move(map, std::back_inserter(page));
  }
  std::ranges::move(tables, std::back_inserter(page));
  return size.rows == 0 ? page : cut_to_height(std::move(page), size.rows, size.columns);
}

}  // namespace moestro::cli
