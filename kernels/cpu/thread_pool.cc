#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "common/check.h"

namespace moestro::kernels::cpu {

namespace {
constexpr int kPausesBetweenLooks = 8;
constexpr int kLooksBetweenClocks = 32;
constexpr int64_t kChunksMax = UINT32_MAX;

uint32_t generation_of(uint64_t state) {
  return static_cast<uint32_t>(state >> 32);
}
int64_t left_in(uint64_t state) {
  return static_cast<int64_t>(state & UINT32_MAX);
}

void pause() {
#if defined(__x86_64__)
  for (int i = 0; i < kPausesBetweenLooks; ++i) __builtin_ia32_pause();
#else
  for (int i = 0; i < kPausesBetweenLooks; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

void futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}
}  // namespace

ThreadPool::ThreadPool(int threads) {
  MOESTRO_CHECK(threads >= 1, "a pool has at least its caller");
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::wake() {
  // Sequentially consistent on both sides: either the sleeper sees the new epoch, or this sees the sleeper.
  epoch_.fetch_add(1);
  if (sleepers_.load() > 0) futex(epoch_, FUTEX_WAKE, INT_MAX);
}

void ThreadPool::run_chunks(int64_t chunks, Call call, const void* body) {
  MOESTRO_CHECK(chunks < kChunksMax, "too many chunks");
  // Nobody reads these now: the last loop ended, so no claim of its generation can succeed any more.
  chunks_.store(chunks, std::memory_order_relaxed);
  call_.store(call, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = generation_of(state_.load(std::memory_order_relaxed)) + 1u;
  const uint64_t state = generation << 32 | static_cast<uint64_t>(chunks);
  state_.store(state, std::memory_order_release);
  wake();
  work(state, 0);
  for (int looks = 0; done_.load(std::memory_order_acquire) < chunks; ++looks) {
    pause();
    if (looks > 1000) sched_yield();  // a thread that holds a chunk may need this core
  }
}

/// Claims and runs chunks of the loop of state's generation until there are none.
void ThreadPool::work(uint64_t state, int thread) {
  const uint32_t generation = generation_of(state);
  const int64_t chunks = chunks_.load(std::memory_order_relaxed);
  const Call call = call_.load(std::memory_order_relaxed);
  const void* body = body_.load(std::memory_order_relaxed);
  while (generation_of(state) == generation && left_in(state) > 0) {
    if (!state_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    call(body, chunks - left_in(state),
         thread);  // the claim succeeded, so what was read above is of this generation
    done_.fetch_add(1, std::memory_order_release);
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker(int thread) {
  uint32_t last = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t state = await_work(last);
    last = generation_of(state);
    if (!stop_.load(std::memory_order_relaxed)) work(state, thread);
  }
}

/// The state once its generation differs from `last_generation`, or whatever it is when the pool stops.
uint64_t ThreadPool::await_work(uint32_t last_generation) {
  auto spin_end = std::chrono::steady_clock::now() + kSpin;
  for (int looks = 1;; ++looks) {
    const uint32_t epoch = epoch_.load();
    const uint64_t state = state_.load(std::memory_order_acquire);
    if (generation_of(state) != last_generation || stop_.load()) return state;
    if (looks % kLooksBetweenClocks != 0) {
      pause();
      continue;
    }
    if (std::chrono::steady_clock::now() < spin_end) {
      sched_yield();
      continue;
    }
    sleepers_.fetch_add(1);
    futex(epoch_, FUTEX_WAIT, epoch);
    sleepers_.fetch_sub(1);
    spin_end = std::chrono::steady_clock::now() + kSpin;
  }
}

}  // namespace moestro::kernels::cpu
