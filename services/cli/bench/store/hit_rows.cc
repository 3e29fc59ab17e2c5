#include <time.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "services/cli/bench/store/fetch_rows.h"

namespace moestro::cli {
namespace {

constexpr size_t kEntries = 16;
constexpr int kHits = 200'000;
constexpr int kTurns = 61;  ///< 0.6 s: whoever shares the core slows it down for tenths of one
constexpr std::chrono::milliseconds kHitPatience{60000};

/// CPU time of this thread: what neighbours take of a core is not the protocol's; what they do to its cache lines is in
/// it.
double cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

/// Nanoseconds of one pin with its unpin; 0 if one of them was no hit.
double hit_ns(store::StoreClient& client, const std::vector<uint32_t>& blobs) {
  const double begin = cpu_ns();
  for (int i = 0; i < kHits; ++i)
    if (!client.try_pin(blobs[static_cast<size_t>(i) % blobs.size()])) return 0;
  return (cpu_ns() - begin) / kHits;
}

/// Both at once on the same entries, from the same moment; each thread is a worker with a client of its own.
std::pair<double, double> both(store::StoreClient& one, store::StoreClient& two, const std::vector<uint32_t>& blobs) {
  std::atomic<int> ready{0};
  const auto run = [&](store::StoreClient& client, double& ns) {
    ready.fetch_add(1);
    while (ready.load() < 2) {
    }
    ns = hit_ns(client, blobs);
  };
  std::pair<double, double> ns;
  std::thread other([&] { run(two, ns.second); });
  run(one, ns.first);
  other.join();
  return ns;
}

StoreRow missing(const char* what, const char* unit, std::string why) {
  StoreRow r;
  r.what = what, r.unit = unit, r.missing = std::move(why);
  return r;
}

}  // namespace

Status add_hit_rows(const StoreBenchOptions&, store::StoreClient& one, store::StoreClient& two,
                    std::vector<StoreRow>& rows) {
  std::vector<uint32_t> blobs = experts_of(one.manifest());
  blobs.resize(std::min(blobs.size(), kEntries));
  const auto too_few = [&] {
    return missing(
        "pin + unpin", "ns",
        "the arena cannot hold " + std::to_string(blobs.size()) + " experts for two workers: give more --dram");
  };
  uint64_t cost = 0;
  for (const uint32_t blob : blobs) cost += one.pin_cost(one.manifest().blobs[blob].length);
  if (cost > std::min(one.share_bytes(), two.share_bytes())) {
    rows.push_back(too_few());
    return Status::ok();
  }
  std::vector<store::Lease> held;  // none is evicted while the others come
  for (const uint32_t blob : blobs)
    if (auto lease = one.try_pin(blob)) held.push_back(std::move(*lease));
    else {
      MOESTRO_RETURN_IF_ERROR(one.fetch({&blob, 1}, {}));
      MOESTRO_ASSIGN_OR_RETURN(auto arrived, one.next_arrival(kHitPatience));
      held.push_back(std::move(arrived));
    }
  held.clear();
  std::vector<double> alone, together;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double a = hit_ns(one, blobs);
    const auto [b, c] = both(one, two, blobs);
    if (a == 0 || b == 0 || c == 0) {
      rows.push_back(too_few());
      return Status::ok();
    }
    alone.push_back(a);
    together.push_back(a / b + a / c);
  }
  StoreRow pins;
  pins.what = "pin + unpin", pins.unit = "ns", pins.value = quantile(alone, 0.5);
  pins.aim_kind = StoreRow::Aim::kAtMost, pins.aim = 30;
  pins.how = std::to_string(blobs.size()) + " resident experts in turn, CPU time";
  rows.push_back(pins);
  StoreRow pair;
  pair.what = "two workers on the same entries", pair.unit = "x", pair.value = quantile(together, 0.5);
  pair.aim_kind = StoreRow::Aim::kAtLeast, pair.aim = 1.8;
  pair.how =
      "pins a second of both together, of one alone; the same " + std::to_string(blobs.size()) + " experts, CPU time";
  rows.push_back(pair);
  return Status::ok();
}

}  // namespace moestro::cli
