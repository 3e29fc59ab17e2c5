#pragma once
// A small team of persistent threads for loops of a few microseconds to milliseconds. One caller at a time;
// the caller works too.
//
// A loop is cut into chunks. Each thread has a range of chunks, which it claims one by one from the front, so that
// chunks that are adjacent in memory are one stream for the hardware's prefetcher. A thread that has none left claims
// from the back of other ranges. So a thread that comes late, because it slept or another process has its core, runs
// fewer chunks, and no thread waits for one that holds none. Results do not depend on which thread runs a chunk. An
// idle thread spins for kSpin, then sleeps in the kernel until the next loop.
//
// Threads may be on several NUMA nodes. Then run_at() gives chunks to threads of the node that the caller names, for
// example the node of their weights. A thread that has none left claims from its own node's threads first.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cpu/scratch.h"

namespace moestro::kernels::cpu {

class ThreadPool {
 public:
  static constexpr std::chrono::microseconds kSpin{80};

  /// `threads` >= 1, including the caller. Thread i runs only on CPU cpus[i], if that is given and the kernel allows
  /// it. The caller, thread 0, is not pinned, because threads that it starts for other work would inherit that. Thread
  /// i is on NUMA node nodes[i]; without `nodes`, all are on one.
  explicit ThreadPool(int threads, std::span<const int> cpus = {}, std::span<const int> nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  bool of_several_nodes() const { return teams_.size() > 1; }
  /// Chunks of run_at() so far whose node has threads: those that these threads ran, and those that others ran. 0 if
  /// all threads are on one node.
  uint64_t chunks_on_their_node() const;
  uint64_t chunks_elsewhere() const;

  /// body(chunk, thread) for every chunk in [0, chunks), thread in [0, threads()); returns when all are done.
  /// `body` may not throw.
  template <class Body>
  void run(int64_t chunks, const Body& body) {
    if (chunks <= 0) return;
    if (chunks == 1 || workers_.empty()) {
      for (int64_t i = 0; i < chunks; ++i) body(i, 0);
      return;
    }
    share_out(chunks);
    run_chunks(chunks, nullptr, &call_body<Body>, &body);
  }

  /// Like run(). node_of(chunk) is the node that should run it, if it has a thread; -1: any node.
  template <class NodeOf, class Body>
  void run_at(int64_t chunks, const NodeOf& node_of, const Body& body) {
    if (!of_several_nodes() || chunks <= 1) return run(chunks, body);
    int32_t* team = team_of_chunk_.at_least(chunks);
    for (int64_t i = 0; i < chunks; ++i) team[i] = team_of(node_of(i));
    run_chunks(chunks, share_out_by_team(chunks), &call_body<Body>, &body);
  }

 private:
  using Call = void (*)(const void* body, int64_t chunk, int thread);
  template <class Body>
  static void call_body(const void* body, int64_t chunk, int thread) {
    (*static_cast<const Body*>(body))(chunk, thread);
  }
  /// The threads of one node.
  struct Team {
    int node = 0;
    std::vector<size_t> threads = {};
    int64_t end = 0;  ///< of its chunks in order_, while they are distributed
  };
  void form_teams(std::span<const int> nodes);
  static constexpr int32_t kNoTeam = -1;
  /// A chunk and the team of its node.
  struct Placed {
    uint32_t chunk = 0;
    int32_t team = kNoTeam;
  };
  int32_t team_of(int node) const;
  void share_out(int64_t chunks);
  const Placed* share_out_by_team(int64_t chunks);
  void run_chunks(int64_t chunks, const Placed* placed, Call call, const void* body);
  void work(uint32_t generation, int thread);
  int64_t claim(size_t of, uint32_t generation, bool from_front);
  void worker(int thread, int cpu);
  uint32_t await_work(uint32_t last_generation);
  void wake();

  // {generation, first remaining chunk, end} in one word. A claim succeeds only in the loop whose body the thread has
  // read, and never in one that is completely claimed.
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
    int64_t first = 0, end = 0;           ///< of the next loop, only for its caller
    int32_t team = 0;                     ///< of the thread
    std::atomic<uint64_t> on_their_node{0}, elsewhere{0};  ///< chunks that the thread ran
    std::vector<size_t> claims_from = {}; ///< threads: itself, then its team's, then the others
  };
  std::vector<Range> ranges_;  ///< of each thread
  std::vector<Team> teams_;    ///< at least one
  Scratch<int32_t> team_of_chunk_;
  Scratch<Placed> order_;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<const Placed*> placed_{
      nullptr};  ///< the chunk at each position of the ranges; null: the chunk of that number
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< the futex word: changes with every loop and at the end
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace moestro::kernels::cpu
