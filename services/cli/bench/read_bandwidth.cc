#include "services/cli/bench/read_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "common/check.h"

namespace moestro::cli {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

using Word = unsigned long long;
typedef Word Line __attribute__((vector_size(64), aligned(8), may_alias));

constexpr size_t kPrefetchWords = 512;  // 4 KiB ahead: past what the hardware fetches by itself, as the kernels do

// Wide loads, four independent sums, prefetch: the loop waits for memory and for nothing else.
// Not with the thread sanitizer, whose runtime is not there yet when clones are resolved.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
Word sum_of(const Word* data, size_t words) {
  Line a = {}, b = {}, c = {}, d = {};
  size_t i = 0;
  for (; i + 32 <= words; i += 32) {
    const Line* line = reinterpret_cast<const Line*>(data + i);
    for (size_t k = 0; k < 32; k += 8) __builtin_prefetch(data + i + kPrefetchWords + k);
    a += line[0];
    b += line[1];
    c += line[2];
    d += line[3];
  }
  const Line all = a + b + c + d;
  Word total = 0;
  for (int k = 0; k < 8; ++k) total += all[k];
  for (; i < words; ++i) total += data[i];
  return total;
}

}  // namespace

ReadBandwidth::ReadBandwidth(int threads, size_t bytes)
    : threads_(threads), words_(bytes / sizeof(Word) / static_cast<size_t>(threads) * static_cast<size_t>(threads)), buffer_(static_cast<Word*>(std::aligned_alloc(kHugePage, bytes))) {
  MOESTRO_CHECK(buffer_ != nullptr, "the benchmark's buffer");
  // In huge pages where the system gives them, as packs are: page walks are no part of what is measured.
  (void)::madvise(buffer_.get(), bytes, MADV_HUGEPAGE);
  std::fill(buffer_.get(), buffer_.get() + words_, Word{1});
}

Nanos ReadBandwidth::pass(const Clock& clock) {
  std::atomic<Word> total{0};  // so that the sums are not for nothing
  std::atomic<int> waiting{threads_};
  const size_t part = words_ / static_cast<size_t>(threads_);
  Nanos begin{0};
  const auto read = [&](int t) {
    // Starting a thread takes as long as a good part of the pass: all begin together.
    if (waiting.fetch_sub(1) == 1) begin = clock.now();
    while (waiting.load() > 0) std::this_thread::yield();
    total += sum_of(buffer_.get() + static_cast<size_t>(t) * part, part);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads_; ++t) helpers.emplace_back(read, t);
  read(0);
  for (std::thread& h : helpers) h.join();
  const Nanos took = clock.now() - begin;
  MOESTRO_CHECK(total.load() >= words_, "every word was read");
  return took;
}

}  // namespace moestro::cli
