#pragma once
// A small team of persistent threads for loops of a few microseconds to milliseconds. One caller at a time;
// the caller works too.
//
// A loop is cut in chunks, and each thread has a range of them, which it claims one by one from the front: chunks
// that are neighbours in memory are one stream for the hardware's prefetcher. Who has none left claims from the
// back of the others' ranges, so a thread that comes late, because it slept or another process has its core,
// takes fewer, and nobody waits for a thread that holds none. Which thread runs a chunk never shows in the
// results. An idle thread spins for kSpin, then sleeps in the kernel until the next loop.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace moestro::kernels::cpu {

class ThreadPool {
 public:
  static constexpr std::chrono::microseconds kSpin{80};

  /// `threads` >= 1, the caller included. Thread i runs on CPU cpus[i] only, where that is given and the kernel allows it; the caller,
  /// thread 0, is left alone, because threads that it starts for other work would inherit the bond.
  explicit ThreadPool(int threads, std::span<const int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// body(chunk, thread) for every chunk in [0, chunks), thread in [0, threads()); returns when all are done.
  /// `body` may not throw.
  template <class Body>
  void run(int64_t chunks, const Body& body) {
    if (chunks <= 0) return;
    if (chunks == 1 || workers_.empty()) {
      for (int64_t i = 0; i < chunks; ++i) body(i, 0);
      return;
    }
    run_chunks(
        chunks, [](const void* b, int64_t i, int thread) { (*static_cast<const Body*>(b))(i, thread); },
        &body);
  }

 private:
  using Call = void (*)(const void* body, int64_t chunk, int thread);
  void run_chunks(int64_t chunks, Call call, const void* body);
  void work(uint32_t generation, int thread);
  int64_t claim(int of, uint32_t generation, bool from_front);
  void worker(int thread, int cpu);
  uint32_t await_work(uint32_t last_generation);
  void wake();

  // {generation, first chunk left, end} in one word: a claim succeeds only in the loop whose body the thread
  // has read, and never in one that has been claimed whole.
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };
  std::vector<Range> ranges_;  ///< of each thread
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< the futex word: changes with every loop and at the end
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace moestro::kernels::cpu
