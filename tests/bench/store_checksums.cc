#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/limits/memory.h"
#include "store/reader/slice_hash.h"
#include "tests/bench/store_bench.h"

namespace moestro::store {

int bench_checksums() {
  constexpr int64_t kBytes = int64_t{1} << 30, kSlice = 2'359'296;  // an expert of 3 x 1024 x 384 numbers of 16 bits
  constexpr int kRounds = 7;
  kernels::cpu::ThreadPool pool(1);
  const auto memory = kernels::limits::StreamedMemory::create(kBytes, pool);
  if (!memory) return (std::fprintf(stderr, "%s\n", memory.status().message().c_str()), 1);
  uint64_t sum = 0;
  const struct {
    const char* what;
    std::function<void(int64_t at)> of_slice;
  } ways[] = {
      {"XXH3-128, the store's (common/xxh3.h)",
       [&](int64_t at) { sum += hash_of(reinterpret_cast<const std::byte*>((*memory)->data() + at), kSlice).low; }},
      {"XXH3-128, the library's plain one",
       [&](int64_t at) { sum += XXH3_128bits((*memory)->data() + at, kSlice).low64; }},
      {"a loop that only loads (the limit)", [&](int64_t at) { (*memory)->read(at, kSlice, pool); }},
  };
  std::vector<double> rates[std::size(ways)];
  for (int round = 0; round < kRounds; ++round)
    for (size_t way = 0; way < std::size(ways); ++way) {
      const auto begin = std::chrono::steady_clock::now();
      int64_t at = 0;
      for (; at + kSlice <= kBytes; at += kSlice) ways[way].of_slice(at);
      rates[way].push_back(static_cast<double>(at) / 1e9 /
                           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  for (size_t way = 0; way < std::size(ways); ++way) {
    std::ranges::sort(rates[way]);
    std::printf("%-40s %6.1f GB/s   (min %.1f, max %.1f)\n", ways[way].what, rates[way][kRounds / 2],
                rates[way].front(), rates[way].back());
  }
  std::printf("one thread, slices of %.1f MB of 1 GiB, %d rounds in turns%s\n", kSlice / 1e6, kRounds,
              sum == 0 ? "." : "");  // the sum is used
  return 0;
}

}  // namespace moestro::store
