// What the expert store costs in addition to the reads themselves: CPU time of reads with and without registered
// buffers, pin and unpin of resident experts, and checksums. Variants are measured in turns in one run.
//
//   moestro_store_bench reads FILE [GIB]     FILE: large, on the drive in question; GIB: how much each round reads (1)
//   moestro_store_bench hits                 a store and a worker in this process
//   moestro_store_bench checksums            one thread, slices as long as a small expert's, compared with a loop that
//                                            only loads

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "store/reader/reader.h"
#include "tests/bench/store_bench.h"

namespace moestro::store {
namespace {

constexpr uint32_t kChunk = 1 << 20, kDepth = 8;
constexpr int kRounds = 7;

struct ReadCost {
  double seconds = 0, cpu_seconds = 0;
};

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// Reads `bytes` from the start of file 0, over and over if it is shorter, into `memory`.
ReadCost read_once(Reader& reader, uint64_t file_bytes, uint64_t bytes, std::span<std::byte> memory) {
  const auto begin = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  std::vector<ReadResult> results;
  for (uint64_t asked = 0, done = 0; done < bytes;) {
    while (asked < bytes && reader.submit({0, asked % file_bytes, memory.data() + asked % memory.size(), kChunk, 0}))
      asked += kChunk;
    pollfd wait{reader.event_fd(), POLLIN, 0};
    ::poll(&wait, 1, 1000);
    results.clear();
    reader.reap(results);
    for (const ReadResult& r : results) {
      if (r.result != kChunk)
        std::exit((std::fprintf(stderr, "a read gave %lld\n", static_cast<long long>(r.result)), 1));
      done += kChunk;
    }
  }
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), cpu_seconds() - cpu};
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int bench_reads(const char* path, uint64_t bytes) {
  const int fd = ::open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return (std::perror(path), 1);
  const uint64_t file_bytes = static_cast<uint64_t>(info.st_size) / kChunk * kChunk;
  if (file_bytes == 0) return (std::fprintf(stderr, "%s is shorter than a chunk\n", path), 1);
  constexpr size_t kMemory = 64 << 20;
  for (const bool huge : {false, true}) {
    void* at = ::mmap(nullptr, kMemory + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return (std::perror("mmap"), 1);
    const std::span<std::byte> memory(
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(at) + (2 << 20) - 1) / (2 << 20) * (2 << 20)),
        kMemory);
    ::madvise(memory.data(), kMemory, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(memory.data(), 1, kMemory);
    std::vector<double> rate[2], cpu[2];
    for (int round = 0; round < 2 * kRounds; ++round) {
      const int registered = round % 2;
      auto reader = make_uring_reader({{fd}, -1, registered ? memory : std::span<std::byte>{}}, kDepth);
      if (!reader || !(*reader)->registered())
        return (std::fprintf(stderr, "%s\n", (reader ? (*reader)->registered() : reader.status()).message().c_str()),
                1);
      const ReadCost cost = read_once(**reader, file_bytes, bytes, memory);
      rate[registered].push_back(static_cast<double>(bytes) / 1e9 / cost.seconds);
      cpu[registered].push_back(cost.cpu_seconds * 1e3 / (static_cast<double>(bytes) / 1e9));
    }
    for (const int registered : {0, 1})
      std::printf("%s pages, %-22s %6.2f GB/s %8.2f ms of CPU a GB   (min %.2f, max %.2f)\n", huge ? "2 MiB" : "4 KiB",
                  registered ? "registered buffers:" : "not registered:", median(rate[registered]),
                  median(cpu[registered]), *std::min_element(cpu[registered].begin(), cpu[registered].end()),
                  *std::max_element(cpu[registered].begin(), cpu[registered].end()));
    ::munmap(at, kMemory + (2 << 20));
  }
  return 0;
}

}  // namespace
}  // namespace moestro::store

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "reads" && argc > 2)
    return moestro::store::bench_reads(argv[2], (argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1) << 30);
  if (what == "hits") return moestro::store::bench_hits();
  if (what == "checksums") return moestro::store::bench_checksums();
  std::fprintf(stderr, "moestro_store_bench reads FILE [GIB] | hits | checksums\n");
  return 2;
}
