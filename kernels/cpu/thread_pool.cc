#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "common/check.h"
#include "kernels/cpu/topology.h"

namespace moestro::kernels::cpu {

namespace {
constexpr int kPausesBetweenLooks = 8;
constexpr int kLooksBetweenClocks = 32;
// A range's word: 24 bits of the generation, the first chunk that is left, the end. A thread could take another loop
// for its own only if it slept, between reading the body and claiming, through a multiple of 2^24 loops: at 50 us each,
// a quarter of an hour.
constexpr int kChunkBits = 20;
constexpr int64_t kChunksMax = (int64_t{1} << kChunkBits) - 1;

uint64_t range_word(uint32_t generation, int64_t first, int64_t end) {
  return uint64_t{generation} << (2 * kChunkBits) | static_cast<uint64_t>(first) << kChunkBits |
         static_cast<uint64_t>(end);
}
bool of_generation(uint64_t word, uint32_t generation) {
  return word >> (2 * kChunkBits) == (generation & ((1u << (64 - 2 * kChunkBits)) - 1));
}
int64_t first_of(uint64_t word) {
  return static_cast<int64_t>(word >> kChunkBits) & kChunksMax;
}
int64_t end_of(uint64_t word) {
  return static_cast<int64_t>(word) & kChunksMax;
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

ThreadPool::ThreadPool(int threads, std::span<const int> cpus, std::span<const int> nodes)
    : ranges_(static_cast<size_t>(std::max(threads, 1))) {
  MOESTRO_CHECK(threads >= 1, "a pool has at least its caller");
  MOESTRO_CHECK(nodes.empty() || nodes.size() == ranges_.size(), "a node for each thread");
  form_teams(nodes);
  for (int i = 1; i < threads; ++i) {
    const int cpu = static_cast<size_t>(i) < cpus.size() ? cpus[static_cast<size_t>(i)] : -1;
    workers_.emplace_back([this, i, cpu] { worker(i, cpu); });
  }
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

void ThreadPool::form_teams(std::span<const int> nodes) {
  const size_t n = ranges_.size();
  for (size_t t = 0; t < n; ++t) {
    const int node = nodes.empty() ? 0 : nodes[t];
    if (team_of(node) == kNoTeam) teams_.push_back({node});
    ranges_[t].team = team_of(node);
    teams_[static_cast<size_t>(ranges_[t].team)].threads.push_back(t);
  }
  for (size_t t = 0; t < n; ++t)
    for (const bool own_team : {true, false})
      for (size_t i = 0; i < n; ++i)
        if (const size_t of = (t + i) % n; (ranges_[of].team == ranges_[t].team) == own_team)
          ranges_[t].claims_from.push_back(of);
}

int32_t ThreadPool::team_of(int node) const {
  const auto team = std::ranges::find(teams_, node, &Team::node);
  return team == teams_.end() ? kNoTeam : static_cast<int32_t>(team - teams_.begin());
}

uint64_t ThreadPool::chunks_on_their_node() const {
  uint64_t all = 0;
  for (const Range& range : ranges_) all += range.on_their_node.load(std::memory_order_relaxed);
  return all;
}

uint64_t ThreadPool::chunks_elsewhere() const {
  uint64_t all = 0;
  for (const Range& range : ranges_) all += range.elsewhere.load(std::memory_order_relaxed);
  return all;
}

void ThreadPool::share_out(int64_t chunks) {
  const auto n = static_cast<int64_t>(ranges_.size());
  for (int64_t t = 0; t < n; ++t) {
    Range& range = ranges_[static_cast<size_t>(t)];
    range.first = t * chunks / n, range.end = (t + 1) * chunks / n;
  }
}

/// Each team's chunks beside each other, in rising order, and even parts of them for its threads; a chunk without a
/// team goes where a plain loop would have it.
const ThreadPool::Placed* ThreadPool::share_out_by_team(int64_t chunks) {
  MOESTRO_CHECK(chunks <= kChunksMax, "too many chunks");
  const int32_t* team_of_chunk = team_of_chunk_.at_least(chunks);
  const auto n = static_cast<int64_t>(ranges_.size());
  const auto team_for = [&](int64_t chunk) -> Team& {
    const int32_t team = team_of_chunk[chunk];
    return teams_[static_cast<size_t>(
        team != kNoTeam ? team : ranges_[static_cast<size_t>(((chunk + 1) * n - 1) / chunks)].team)];
  };
  for (Team& team : teams_) team.end = 0;
  for (int64_t i = 0; i < chunks; ++i) ++team_for(i).end;
  int64_t first = 0;
  for (Team& team : teams_) {
    const int64_t count = std::exchange(team.end, first);
    const auto threads = static_cast<int64_t>(team.threads.size());
    for (int64_t t = 0; t < threads; ++t) {
      Range& range = ranges_[team.threads[static_cast<size_t>(t)]];
      range.first = first + t * count / threads, range.end = first + (t + 1) * count / threads;
    }
    first += count;
  }
  Placed* order = order_.at_least(chunks);
  for (int64_t i = 0; i < chunks; ++i) order[team_for(i).end++] = {static_cast<uint32_t>(i), team_of_chunk[i]};
  return order;
}

void ThreadPool::run_chunks(int64_t chunks, const Placed* placed, Call call, const void* body) {
  MOESTRO_CHECK(chunks <= kChunksMax, "too many chunks");
  // Nobody reads these now: the last loop ended, so no claim of its generation can succeed any more.
  call_.store(call, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  placed_.store(placed, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  for (Range& range : ranges_)
    range.word.store(range_word(generation, range.first, range.end), std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  wake();
  work(generation, 0);
  for (int looks = 0; done_.load(std::memory_order_acquire) < chunks; ++looks) {
    pause();
    if (looks > 1000) sched_yield();  // a thread that holds a chunk may need this core
  }
}

/// A place of the range of thread `of`, or -1.
int64_t ThreadPool::claim(size_t of, uint32_t generation, bool from_front) {
  std::atomic<uint64_t>& range = ranges_[of].word;
  uint64_t word = range.load(std::memory_order_acquire);
  while (of_generation(word, generation) && first_of(word) < end_of(word)) {
    const int64_t first = first_of(word), end = end_of(word);
    const uint64_t rest = from_front ? range_word(generation, first + 1, end) : range_word(generation, first, end - 1);
    if (range.compare_exchange_weak(word, rest, std::memory_order_acq_rel, std::memory_order_acquire))
      return from_front ? first : end - 1;
  }
  return -1;
}

/// Claims and runs chunks of the loop of `generation` until there are none.
void ThreadPool::work(uint32_t generation, int thread) {
  const Call call = call_.load(std::memory_order_relaxed);
  const void* body = body_.load(std::memory_order_relaxed);
  const Placed* placed = placed_.load(std::memory_order_relaxed);
  const auto own = static_cast<size_t>(thread);
  Range& mine = ranges_[own];
  for (const size_t of : mine.claims_from) {
    for (int64_t place = claim(of, generation, of == own); place >= 0; place = claim(of, generation, of == own)) {
      // The claim succeeded, so what was read above is of this generation.
      call(body, placed == nullptr ? place : placed[place].chunk, thread);
      if (placed != nullptr && placed[place].team != kNoTeam)
        (placed[place].team == mine.team ? mine.on_their_node : mine.elsewhere).fetch_add(1, std::memory_order_relaxed);
      done_.fetch_add(1, std::memory_order_release);
    }
  }
}

void ThreadPool::worker(int thread, int cpu) {
  if (cpu >= 0) (void)run_on({&cpu, 1}).is_ok();  // a CPU that went away since: then it runs anywhere
  uint32_t last = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    last = await_work(last);
    if (!stop_.load(std::memory_order_relaxed)) work(last, thread);
  }
}

/// The generation once it differs from `last_generation`, or whatever it is when the pool stops.
uint32_t ThreadPool::await_work(uint32_t last_generation) {
  auto spin_end = std::chrono::steady_clock::now() + kSpin;
  for (int looks = 1;; ++looks) {
    const uint32_t epoch = epoch_.load();
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (generation != last_generation || stop_.load()) return generation;
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
