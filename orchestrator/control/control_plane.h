#pragma once
// The control thread. Everything here runs on it, except submit, cancel, snapshot and drain, which other threads call.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/shm/file_access.h"
#include "common/status.h"
#include "orchestrator/control/device_figures.h"
#include "orchestrator/control/duration_histogram.h"
#include "orchestrator/control/expert_use.h"
#include "orchestrator/history/history_keeper.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

struct ControlOptions {
  std::string endpoint;  ///< workers connect here
  shm::FileAccess access = {};  ///< of the workers that may map the history
  std::string model;     ///< as served; workers of other models are refused
  uint64_t tokenizer = 0;  ///< XXH3-64 of tokenizer.json; workers whose packs have another are refused; 0: not known
  std::optional<int64_t> step_tokens;  ///< nullopt: SchedulerOptions::usual_step
  size_t steps_in_flight = 2;  ///< of each worker: 1 or 2
  std::vector<TokenId> eos_ids;
  bool overtaking = true;       ///< SchedulerOptions
  std::chrono::milliseconds tpot_target{0};  ///< SchedulerOptions; so the next two
  int64_t interactive_weight = 16;
  std::chrono::milliseconds batch_aging{60000};
  bool prefix_cache = true; ///< equal prefixes share KV blocks
  HistoryOptions history;
  /// Stores a checkpoint of the history; called on the control thread. May be empty.
  std::function<void(std::vector<std::byte>)> keep_history = {};
  size_t queue_max = 4096;  ///< sequences waiting or running; more are refused
  std::chrono::milliseconds silence_max{2000};  ///< a worker that is silent for longer is considered dead
  /// A worker that is told to stop, and that no other can take the place of, may end requests for so long.
  std::chrono::milliseconds leave_max{30000};
  std::chrono::milliseconds worker_wait{60000};  ///< a sequence fails after waiting this long while there was no worker
  /// Version of the model's pack that the store serves now; 0: unknown. Null: the workers' own version counts. Read
  /// each turn.
  const std::atomic<uint64_t>* served_version = nullptr;
  std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();  ///< read on any thread
};

/// The events for a sequence's owner. Finished and Failed are the last.
using SequenceEvent = std::variant<Progress, Finished, Failed>;
using Sink = std::function<void(SequenceEvent)>;

/// Workers that have the history, and how.
struct HistoryReaders {
  uint64_t by_memory = 0;     ///< workers that have mapped it
  uint64_t by_messages = 0;   ///< workers with their own copy
  uint64_t shared_bytes = 0;  ///< of memory that can be mapped; 0: there is none
};

/// Steps of one kind that workers have computed, since the start.
struct StepTotals {
  uint64_t steps = 0, tokens = 0, step_us = 0, stall_us = 0;
  uint64_t dense_stall_us = 0, kv_stall_us = 0;  ///< of stall_us; the rest is for experts
};

/// Figures for /metrics, /health and the status page. Totals since the start.
struct ControlSnapshot {
  struct Worker {
    std::string name, device;
    double age_s = 0;  ///< since its last message
    double step_age_s = 0;  ///< while it has plans: since it got the first of them, or finished the previous one
    bool outdated = false;  ///< its version of the pack is no longer served: it only finishes its sequences
    uint64_t plans = 0, plans_in_flight = 0;
    uint64_t step_us = 0, stall_us = 0, last_step_us = 0;
    uint64_t expert_hits = 0, expert_misses = 0;
    uint64_t kv_blocks = 0;
    uint32_t moe_layers = 0;
    // Figures of a device with its own memory. Without one all are 0, and hits and misses are those in host memory.
    uint64_t device_slots = 0, device_slot_bytes = 0, device_resident = 0;
    DeviceTotals device_totals = {};
    RecentUses recent = {};
    bool has_device() const { return device_slots > 0; }
  };
  std::vector<Worker> workers;
  size_t waiting = 0, running = 0;
  size_t waiting_of_batches = 0;      ///< part of the waiting sequences
  uint64_t preemptions = 0;           ///< sequences sent back to the queue to make room
  uint64_t quarantined = 0;           ///< sequences that were given up because workers died of them
  uint64_t kv_blocks_used = 0, kv_blocks_total = 0;
  uint64_t kv_host_blocks_used = 0, kv_host_blocks_total = 0;      ///< copies in host memory, in addition to devices'
                                                                   ///< blocks
  uint64_t kv_moved_out_tokens = 0, kv_moved_in_tokens = 0;        ///< to host memory, and back
  uint64_t state_slots = 0, states_held = 0, states_cached = 0;    ///< of sequences; held by those that run, kept of
                                                                   ///< prefixes
  uint64_t states_kept = 0, states_restored = 0;
  uint64_t prefix_blocks = 0;         ///< KV blocks that no sequence uses and that can be found again
  uint64_t prefix_cached_tokens = 0;  ///< found in the KV cache instead of computed
  uint64_t plans = 0, step_us = 0, stall_us = 0, expert_hits = 0, expert_misses = 0, fetched_bytes = 0,
           nonfinite_sequences = 0, dropped_rows = 0;
  uint64_t parks = 0, parked_us = 0;  ///< how often steps of batches gave way to others between two layers; meanwhile
  uint64_t dense_bytes = 0, dense_stall_us = 0;  ///< of dense weights that take turns in host memory or on a device
  uint64_t kv_stall_us = 0;  ///< waiting for KV that moves, or for attention on the host
  StepTotals prompt_steps;    ///< that read prompts, whatever decodes in them too
  StepTotals decoding_steps;  ///< that only decode
  CopyCounts copies;  ///< of workers that serve missing experts by low copies or by none
  /// Of them by MoE layer: where experts are missing on a device, and where in host memory. Empty: there was no such
  /// worker.
  std::vector<CopyCounts> device_copies, dram_copies;
  uint64_t dram_hits = 0, dram_misses = 0,
           dram_fetched_bytes = 0;  ///< of these, those of workers that compute in host memory
  DeviceTotals device;                                              ///< and figures of the devices of the others
  std::vector<DeviceUse> device_layers;  ///< by MoE layer; empty: there was no worker with a device
  uint64_t sampled_tokens = 0, workers_lost = 0;
  HistoryFigures history;
  HistoryReaders history_readers;
  std::optional<double> history_kept_s;  ///< since the last stored checkpoint; nullopt: there is none
  uint64_t worker_restarts = 0;  ///< workers that registered under a name that was used before
  DurationHistogram steps;
  uint64_t turns = 0;  ///< of the control thread's loop; what was submitted two turns ago is in these figures
};

/// Sequences and the memories of sources take whole blocks. Aligned so that processors load and store it as one.
struct alignas(uint64_t) KvRoom {
  uint32_t blocks = 0, block_tokens = 1;
  int64_t needed(int64_t tokens) const { return (tokens + block_tokens - 1) / block_tokens; }
  int64_t tokens() const { return int64_t{blocks} * block_tokens; }
};

class ControlPlane {
 public:
  /// Binds the endpoint and starts the thread.
  static Result<std::unique_ptr<ControlPlane>> start(ControlOptions options);
  ~ControlPlane();

  /// Queues a sequence. kExhausted if it has no place (scheduler/queue_places.h); kUnavailable while draining. `sink`
  /// is called on the control thread.
  Status submit(SequenceRequest request, Sink sink);
  /// Its sink is not called any more after the control thread has seen this; one event may still be in progress.
  /// `sampled`: the number of its tokens that are its answer; -1: all. For a sequence that has ended by itself, but
  /// whose text may have ended earlier, this says where.
  void cancel(SequenceId id, int64_t sampled = -1);
  SequenceId next_sequence_id();
  /// For a client that submit() has just refused because of the queue: when to expect a place.
  std::chrono::seconds retry_after();

  ControlSnapshot snapshot() const;
  ExpertShares expert_shares() const;
  bool has_worker() const;
  /// Whether there has ever been a worker. Before that, the cluster is still starting.
  bool had_worker() const;
  bool draining() const;
  /// The longest sequence that any worker can hold: its context, or its KV cache. 0 before the first worker.
  int64_t context_max() const;
  /// The longest source that any worker encodes, if its model has an encoder: in one step, and within its context. 0
  /// before the first worker.
  int64_t source_max() const;
  /// The largest KV cache of any worker; none before the first worker.
  KvRoom kv_room() const;
  /// Whether a worker serves missing experts by low copies or by none; without workers as before. From any thread.
  bool serves_mixed() const;
  /// Sequences that the workers can have in their steps at once; without workers as before, 0 at first. From any
  /// thread.
  size_t places() const;
  /// The version of the pack that new sequences are computed with; 0: there was no worker yet. From any thread; it
  /// changes before anything is computed with the new one.
  uint64_t pack_version() const;
  size_t queue_max() const;
  /// The most sequences that one request of `flow` can have at once.
  size_t sequences_max(const std::string& flow) const;
  /// From any thread: the result of the last keep_history.
  void history_kept(const Status& how);
  /// Calls keep_history at once if something has changed since the last time, and waits for it.
  void keep_history_now(std::chrono::milliseconds limit);
  /// Refuses new sequences, waits until the others are done or `limit` has passed; the remaining ones then fail. From
  /// any thread except a sink's.
  void drain(std::chrono::milliseconds limit);

 private:
  class Loop;
  explicit ControlPlane(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace moestro::orchestrator
