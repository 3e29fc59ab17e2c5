#include "tests/bench/store_bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "store/client/store_client.h"
#include "store/pack/packer.h"
#include "store/server/store_server.h"
#include "tests/pack/synthetic_checkpoint.h"
#include "tests/store/memory_directory.h"

namespace moestro::store {
namespace {

constexpr int kRounds = 101, kHitsARound = 100000;
constexpr std::chrono::milliseconds kLong{30000};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// CPU time of this thread: on a busy machine the wall's says more about the neighbours.
double cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double hit_ns(StoreClient& client, const std::vector<uint32_t>& order, uint64_t& sum) {
  const double begin = cpu_ns();
  for (int hits = 0; hits < kHitsARound;) {
    for (size_t i = 0; i < order.size() && hits < kHitsARound; ++i, ++hits) {
      const auto lease = client.try_pin(order[i]);
      sum += lease ? reinterpret_cast<uintptr_t>(lease->data()) : 0;
    }
  }
  return (cpu_ns() - begin) / kHitsARound;
}

/// A pin after other memory has gone through the caches, as an expert's weights do between two hits of a worker; less
/// what the clock itself takes then.
double hit_after_weights_ns(StoreClient& client, const std::vector<uint32_t>& order,
                            const std::vector<uint64_t>& weights, uint64_t& sum) {
  constexpr size_t kHits = 200;
  const auto timed = [&](auto&& work) {
    sum += std::accumulate(weights.begin(), weights.end(), uint64_t{0});
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> pins, clocks;
  for (size_t i = 0; i < kHits; ++i) {
    pins.push_back(timed([&] { sum += reinterpret_cast<uintptr_t>(client.try_pin(order[i])->data()); }));
    clocks.push_back(timed([] {}));
  }
  return median(pins) - median(clocks);
}

void print(const char* what, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-42s %6.1f ns   (min %.1f, max %.1f)\n", what, ns[ns.size() / 2], ns.front(), ns.back());
}

int measure(StoreClient& client) {
  std::vector<uint32_t> experts;
  for (uint32_t blob = 0; blob < client.manifest().blobs.size(); ++blob)
    if (client.manifest().blobs[blob].kind == BlobKind::kExpert) experts.push_back(blob);
  if (!client.fetch(experts, {})) return 1;
  for (size_t i = 0; i < experts.size(); ++i)
    if (const auto arrived = client.next_arrival(kLong); !arrived)
      return (std::fprintf(stderr, "%s\n", arrived.status().message().c_str()), 1);
  std::shuffle(experts.begin(), experts.end(), std::mt19937(1));
  const std::vector<uint32_t> few(experts.begin(), experts.begin() + 16);
  const std::vector<uint64_t> weights((4 << 20) / sizeof(uint64_t), 1);
  std::vector<double> hot, wide, cold;
  uint64_t sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    hot.push_back(hit_ns(client, few, sum));
    wide.push_back(hit_ns(client, experts, sum));
    if (round % 4 == 0) cold.push_back(hit_after_weights_ns(client, experts, weights, sum));
  }
  if (client.counters().hits < uint64_t{2} * kRounds * kHitsARound || sum == 0)
    return (std::fprintf(stderr, "not every pin was a hit\n"), 1);
  print("pin + unpin, 16 experts in turn:", hot);
  print(("pin + unpin, " + std::to_string(experts.size()) + " experts in random order:").c_str(), wide);
  print("pin + unpin, 4 MiB read before each:", cold);
  return 0;
}

}  // namespace

int bench_hits() {
  const testing::TemporaryDirectory dir;
  testing::write_checkpoint(dir / "src", {.hidden = 64, .ffn = 64, .experts = 1024});
  if (const auto packed = pack_checkpoint(dir / "src", dir / "pack", {}, {}); !packed)
    return (std::fprintf(stderr, "%s\n", packed.status().message().c_str()), 1);
  const testing::MemoryDirectory arena(dir / "arena");
  StoreOptions options;
  options.run_dir = dir / "run", options.arena_dir = arena.path(), options.models = {{"m", dir / "pack"}};
  std::atomic<bool> stop{false};
  std::thread store([&] {  // its socket belongs to its thread
    auto server = StoreServer::start(options, stop);
    if (!server) std::fprintf(stderr, "%s\n", server.status().message().c_str());
    else (void)(*server)->run(stop);
  });
  int code = 1;
  {
    auto client = StoreClient::attach(
        {.endpoint = "ipc://" + (dir / "run" / "store.sock").string(), .model = "m", .timeout = kLong});
    if (!client) std::fprintf(stderr, "%s\n", client.status().message().c_str());
    else code = measure(**client);
  }
  stop = true;
  store.join();
  return code;
}

}  // namespace moestro::store
