#pragma once
// Asks the box's store for its figures once a second, for /metrics and the status page. Its own thread waits for the
// store, so that no other thread does.

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

/// The DRAM tier. Counters are those of the running store since its start.
struct StoreFigures {
  uint64_t epoch = 0;  ///< different for each arena
  uint64_t arena_bytes = 0, used_bytes = 0, resident_bytes = 0;
  uint64_t fetches = 0, loads = 0, evictions = 0, bytes_read = 0, retries = 0;
  uint64_t bad_blobs = 0, unreadable = 0;  ///< given up so far; those that cannot be read now
  uint64_t prefetches = 0, prefetches_used = 0, prefetches_late = 0, prefetches_wasted = 0, prefetch_wasted_bytes = 0;
  uint64_t adopted = 0, unchecked = 0, damaged = 0, scrub_mismatches = 0;
  double memory_changed_s = -1;  ///< seconds since bytes in memory were last found changed; negative: never
  uint64_t prefetches_dropped = 0;
  /// Foreseen and not read ahead: why.
  uint64_t foreseen_below_floor = 0, foreseen_over_budget = 0, foreseen_early = 0, foreseen_guarded = 0;
  uint64_t joined = 0;  ///< fetches of blobs that were already being read
  uint64_t workers = 0, pins = 0;
  std::string policy, reader;
  struct Drive {
    std::string path;
    uint64_t bytes_read = 0, retries = 0;
    uint64_t bytes_per_s = 0;      ///< as measured at start; 0: not measured
    double read_per_s = 0;         ///< rate between the last two answers
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
    uint32_t layers = 0, streamed_layers = 0;  ///< with dense weights; of them, those that do not stay in memory
    uint64_t streamed_bytes = 0;               ///< of these, which each step reads
  };
  std::vector<Model> models;
  struct Queue {
    const char* of;  ///< "demand", "prefetch", "scrub"
    uint64_t waiting = 0, reading = 0;
  };
  std::vector<Queue> queues;  ///< of blobs
  /// Progress of reading again what was in memory at the last shutdown.
  uint64_t warm_bytes = 0, warm_bytes_there = 0, warm_left_out = 0;
  bool warm_running = false;
};

/// Computes the drives' rates between two answers of one store into the later one; does nothing if the store is
/// another.
void add_rates(const StoreFigures& before, double seconds, StoreFigures& now);

/// Accepts any bytes; nullopt if they are not a store's status.
std::optional<StoreFigures> read_store_status(const net::Bytes& bytes);

class StoreWatch {
 public:
  /// `on_answer`, if set, gets each answer first, on the watch's thread.
  explicit StoreWatch(std::string endpoint, std::function<void(const StoreFigures&)> on_answer = {});
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  /// nullopt while no store answers. From any thread.
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
