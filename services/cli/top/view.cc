#include "services/cli/top/view.h"

#include <algorithm>
#include <cstdio>

#include "common/config/units.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

using config::readable_size;
using store::StoreStatusReport;

constexpr size_t kBar = 28;

std::string share_of(uint64_t part, uint64_t whole) {
  return percent(whole == 0 ? -1 : static_cast<double>(part) / static_cast<double>(whole));
}
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

void add_summary(const StoreStatusReport& s, const StoreRates& r, std::vector<std::string>& page) {
  page.push_back(printed("arena    %s [%s] %s used, %s resident", readable_size(s.arena_bytes).c_str(), bar(s).c_str(),
                         share_of(s.used_bytes, s.arena_bytes).c_str(), readable_size(s.resident_bytes).c_str()));
  page.push_back(printed("         policy %s, %s, %s of it huge pages", s.policy.c_str(), s.reader.c_str(),
                         share_of(s.huge_bytes, s.arena_bytes).c_str()));
  page.push_back(printed(
      "experts  %s of %s/s were there; %s misses/s; since start %s", percent(hit_share(r.hits, r.misses)).c_str(),
      readable_count(r.hits + r.misses).c_str(), readable_count(r.misses).c_str(),
      percent(hit_share(static_cast<double>(s.reading.hits), static_cast<double>(s.reading.misses))).c_str()));
  page.push_back(printed("reads    %s; %s loads/s, %s evictions/s; %llu retries, %llu bad", speed(r.read_bytes).c_str(),
                         readable_count(r.loads).c_str(), readable_count(r.evictions).c_str(),
                         static_cast<unsigned long long>(s.retries), static_cast<unsigned long long>(s.bad_blobs)));
  const auto& q = s.reading;
  page.push_back(printed("queue    demand %u (%u being read), prefetch %u (%u), scrub %u (%u)", q.queued[0],
                         q.loading[0], q.queued[1], q.loading[1], q.queued[2], q.loading[2]));
}

void add_models(const StoreStatusReport& s, std::vector<std::string>& page) {
  page.push_back(printed("%-22s %15s %9s %10s %9s %4s %5s", "MODEL", "EXPERTS THERE", "MEMORY", "GUARANTEED", "AT MOST",
                         "WRKS", "HITS"));
  for (const auto& m : s.models) {
    const ModelTraffic traffic = traffic_of(s, m.name);
    page.push_back(printed(
        "%-22s %15s %9s %10s %9s %4u %5s", shortened(m.name + (m.retired ? " (going)" : ""), 22).c_str(),
        (std::to_string(m.resident_experts) + " of " + std::to_string(m.experts)).c_str(),
        readable_size(m.used_bytes).c_str(), or_none(m.guaranteed_bytes).c_str(), or_none(m.maximal_bytes).c_str(),
        m.workers, percent(hit_share(static_cast<double>(traffic.hits), static_cast<double>(traffic.misses))).c_str()));
  }
}

void add_workers(const StoreStatusReport& s, const StoreRates& r, std::vector<std::string>& page) {
  page.push_back(printed("%-18s %-21s %8s %8s %5s %6s %8s", "WORKER", "OF MODEL", "HITS/s", "MISSES/s", "HITS",
                         "PINNED", "SHARE"));
  for (size_t i = 0; i < s.workers.size(); ++i) {
    const auto& w = s.workers[i];
    page.push_back(printed("%-18s %-21s %8s %8s %5s %6u %8s", shortened(w.client, 18).c_str(),
                           shortened(w.model, 21).c_str(), readable_count(r.workers[i].hits).c_str(),
                           readable_count(r.workers[i].misses).c_str(),
                           percent(hit_share(static_cast<double>(w.hits), static_cast<double>(w.misses))).c_str(),
                           w.pinned, readable_size(w.share_bytes).c_str()));
  }
}

void add_drives(const StoreStatusReport& s, const StoreRates& r, std::vector<std::string>& page) {
  page.push_back(printed("%-29s %12s %12s %9s %5s %8s", "DRIVE", "NOW", "AT START", "CHUNK", "DEPTH", "RETRIES"));
  for (size_t i = 0; i < s.reading.drives.size(); ++i) {
    const auto& d = s.reading.drives[i];
    page.push_back(printed("%-29s %12s %12s %9s %5u %8llu", shortened(d.path, 29).c_str(),
                           speed(r.drive_bytes[i]).c_str(),
                           d.bytes_per_s == 0 ? "-" : speed(static_cast<double>(d.bytes_per_s)).c_str(),
                           readable_size(d.chunk_bytes).c_str(), d.depth, static_cast<unsigned long long>(d.retries)));
  }
}

void add_rest(const StoreStatusReport& s, std::vector<std::string>& page) {
  const auto n = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  const auto& r = s.reading;
  page.push_back(
      printed("ahead    %llu prefetches: %llu used, %llu late, %llu wasted (%s), %llu dropped, %llu of them for want "
              "of anything colder",
              n(r.prefetches), n(r.prefetches_used), n(r.prefetches_late), n(r.prefetches_wasted),
              readable_size(r.prefetch_wasted_bytes).c_str(), n(r.prefetches_dropped), n(r.prefetches_refused)));
  page.push_back(printed("scrub    %s compared again, %llu changed", readable_size(r.scrubbed_bytes).c_str(),
                         n(r.scrub_mismatches)));
  if (const auto& w = s.warm_start; w.blobs > 0)
    page.push_back(printed("warm     %s of %s, %llu of %llu blobs, in %.1f s; %llu left out%s",
                           readable_size(w.bytes_there).c_str(), readable_size(w.bytes).c_str(), n(w.blobs_there),
                           n(w.blobs), w.seconds, n(w.left_out), w.running ? "; reading" : ""));
  if (s.adopted > 0)
    page.push_back(printed("adopted  %llu blobs (%s) in %.1f s; %llu to check, %llu damaged", n(s.adopted),
                           readable_size(s.adopted_bytes).c_str(), s.adopted_seconds, n(s.unchecked), n(s.damaged)));
  page.push_back(printed("shared   %u blobs lie where another's bytes are; %llu read from another pack", s.aliases,
                         n(s.reads_elsewhere)));
  if (s.refused > 0) page.push_back(printed("refused  %llu messages: the store's log names them", n(s.refused)));
}

}  // namespace

std::string percent(double share) {
  return share < 0 ? "-" : printed(share > 0.995 && share < 1 ? "%.1f %%" : "%.0f %%", 100 * share);
}

std::string shortened(const std::string& name, size_t width) {
  std::string plain = one_line(name);
  if (plain.size() <= width) return plain;
  const size_t tail = (width - 2) / 2, head = width - 2 - tail;
  return plain.substr(0, head) + ".." + plain.substr(plain.size() - tail);
}

std::vector<std::string> top_page(const StoreLook& now, const StoreRates& rates, size_t columns) {
  std::vector<std::string> page;
  add_summary(now.status, rates, page);
  page.emplace_back();
  add_models(now.status, page);
  page.emplace_back();
  add_workers(now.status, rates, page);
  page.emplace_back();
  add_drives(now.status, rates, page);
  page.emplace_back();
  add_rest(now.status, page);
  for (std::string& line : page)
    if (line.size() > columns) line.resize(columns);
  return page;
}

}  // namespace moestro::cli
