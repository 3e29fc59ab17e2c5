#include "services/cli/bench/read_bandwidth.h"

#include <atomic>
#include <thread>

namespace moestro::cli {
namespace {

using Word = unsigned long long;
typedef Word Line __attribute__((vector_size(64), aligned(8), may_alias));

// Wide loads, four independent sums: the loop waits for memory and for nothing else.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
Word sum_of(const Word* data, size_t words) {
  Line sums[4] = {};
  size_t i = 0;
  for (; i + 32 <= words; i += 32)
    for (size_t k = 0; k < 4; ++k) sums[k] += *reinterpret_cast<const Line*>(data + i + 8 * k);
  const Line all = sums[0] + sums[1] + sums[2] + sums[3];
  Word total = 0;
  for (int k = 0; k < 8; ++k) total += all[k];
  for (; i < words; ++i) total += data[i];
  return total;
}

}  // namespace

ReadBandwidth::ReadBandwidth(int threads, size_t bytes) : threads_(threads), buffer_(bytes / sizeof(Word), 1) {}

double ReadBandwidth::measure(const Clock& clock) {
  std::atomic<Word> total{0};  // so that the sums are not for nothing
  const size_t part = buffer_.size() / static_cast<size_t>(threads_);
  const Nanos begin = clock.now();
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads_; ++t)
    helpers.emplace_back([&, t] { total += sum_of(buffer_.data() + static_cast<size_t>(t) * part, part); });
  total += sum_of(buffer_.data(), part);
  for (std::thread& h : helpers) h.join();
  const double seconds = static_cast<double>((clock.now() - begin).count()) * 1e-9;
  return total.load() > 0 ? static_cast<double>(part * static_cast<size_t>(threads_) * sizeof(Word)) / seconds : 0;
}

}  // namespace moestro::cli
