#include "tests/cli/top_figures.h"

namespace moestro::cli {

StoreLook busy() {
  StoreLook look{.status = {}, .at_s = 100};
  auto& s = look.status;
  s.epoch = 7, s.arena_bytes = 1000 * kMiB, s.used_bytes = 750 * kMiB, s.resident_bytes = 500 * kMiB,
  s.huge_bytes = 1000 * kMiB;
  s.reader = "io_uring", s.policy = "lfru", s.loads = 50, s.evictions = 20, s.bytes_read = 900 * kMiB, s.retries = 3,
  s.bad_blobs = 3, s.unreadable = 1, s.aliases = 4;
  s.adopted = 128, s.adopted_bytes = 300 * kMiB, s.adopted_seconds = 0.25, s.unchecked = 12, s.refused = 5;
  s.models.push_back({.name = "mixtral",
                      .pack = "/packs/m",
                      .resident_experts = 97,
                      .experts = 128,
                      .workers = 2,
                      .used_bytes = 700 * kMiB,
                      .guaranteed_bytes = 400 * kMiB,
                      .maximal_bytes = 900 * kMiB});
  s.models.push_back({.name = "qwen", .pack = "/packs/q", .experts = 64, .used_bytes = 50 * kMiB, .retired = true});
  s.workers.push_back({.slot = 0,
                       .client = "worker-0",
                       .model = "mixtral",
                       .share_bytes = 80 * kMiB,
                       .pinned = 3,
                       .hits = 900,
                       .misses = 100});
  s.workers.push_back({.slot = 1,
                       .client = "worker-1",
                       .model = "mixtral",
                       .share_bytes = 80 * kMiB,
                       .pinned = 1,
                       .hits = 90,
                       .misses = 110});
  s.reading.drives.push_back({.path = "/packs",
                              .reader = "io_uring",
                              .chunk_bytes = kMiB,
                              .depth = 4,
                              .bytes_per_s = 2000 * kMiB,
                              .bytes_read = 900 * kMiB,
                              .retries = 3});
  s.reading.hits = 990, s.reading.misses = 210;
  s.reading.queued = {3, 2, 0}, s.reading.loading = {1, 0, 1};
  s.reading.prefetches = 12, s.reading.prefetches_used = 9, s.reading.prefetches_late = 2,
  s.reading.prefetches_wasted = 1, s.reading.prefetch_wasted_bytes = 21 * kMiB;
  s.reading.scrubbed_bytes = 100 * kMiB, s.reading.scrub_mismatches = 1;
  return look;
}

StoreLook two_seconds_later() {
  StoreLook look = busy();
  look.at_s += 2;
  auto& s = look.status;
  s.loads += 10, s.evictions += 4, s.bytes_read += 400 * kMiB, s.reading.hits += 180, s.reading.misses += 20;
  s.workers[0].hits += 180, s.workers[0].misses += 20;
  s.reading.drives[0].bytes_read += 400 * kMiB;
  return look;
}

std::vector<std::string> page_of(const StoreLook& before, const StoreLook& now, const TerminalSize& size) {
  std::vector<std::string> texts;
  for (const Line& line : top_page({}, {}, now, rates_between(before, now), size)) texts.push_back(line.text());
  return texts;
}

}  // namespace moestro::cli
