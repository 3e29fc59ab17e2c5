#pragma once
// What the box's store says of itself, asked for once a second: for /metrics and the status page. A thread of its own,
// which waits for the store so that nobody else does.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/net/zmq_socket.h"

namespace moestro::orchestrator {

/// The DRAM tier. Counters are those of the store that runs, from its start.
struct StoreFigures {
  uint64_t epoch = 0;  ///< another for each arena
  uint64_t arena_bytes = 0, used_bytes = 0, resident_bytes = 0;
  uint64_t fetches = 0, loads = 0, evictions = 0, bytes_read = 0, retries = 0, bad_blobs = 0;
  uint64_t prefetches = 0, prefetches_used = 0, prefetches_late = 0, prefetches_wasted = 0, prefetch_wasted_bytes = 0;
  uint64_t adopted = 0, unchecked = 0, damaged = 0, scrub_mismatches = 0;
  uint64_t prefetches_dropped = 0;
  uint64_t joined = 0;  ///< fetches of blobs that were being read already
  uint64_t workers = 0, pins = 0;
  std::string policy, reader;
  struct Drive {
    std::string path;
    uint64_t bytes_read = 0, retries = 0;
    uint64_t bytes_per_s = 0;      ///< as measured at start; 0: not measured
    double read_per_s = 0;         ///< between the last two answers
    /// 0 to 1; 0 where the speed was not measured.
    double utilisation() const {
      return bytes_per_s > 0 ? std::min(1.0, read_per_s / static_cast<double>(bytes_per_s)) : 0;
    }
  };
  std::vector<Drive> drives;
  struct Model {
    std::string name;
    uint64_t pack_bytes = 0, used_bytes = 0;  ///< on the drives; of the arena
    uint64_t experts = 0, resident_experts = 0;
    uint64_t version = 0;  ///< the pack's identity
  };
  std::vector<Model> models;
  struct Queue {
    const char* of;  ///< "demand", "prefetch", "scrub"
    uint64_t waiting = 0, reading = 0;
  };
  std::vector<Queue> queues;  ///< of blobs
  /// What was in memory when the store was last shut down, being read again.
  uint64_t warm_bytes = 0, warm_bytes_there = 0, warm_left_out = 0;
  bool warm_running = false;
};

/// What the drives have read between two answers of one store, into the later one; nothing where it is another store.
void add_rates(const StoreFigures& before, double seconds, StoreFigures& now);

/// Takes any bytes; none if they are no status of a store.
std::optional<StoreFigures> read_store_status(const net::Bytes& bytes);

class StoreWatch {
 public:
  /// `on_answer`, where there is one, hears each answer first, on the thread of the watch.
  explicit StoreWatch(std::string endpoint, std::function<void(const StoreFigures&)> on_answer = {});
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  /// None while no store answers. From any thread.
  std::optional<StoreFigures> latest() const;

 private:
  void run();
  std::optional<StoreFigures> ask(net::DealerSocket& socket) const;
  bool stopped_within(std::chrono::milliseconds wait);

  const std::string endpoint_;
  const std::function<void(const StoreFigures&)> on_answer_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::optional<StoreFigures> latest_;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace moestro::orchestrator
