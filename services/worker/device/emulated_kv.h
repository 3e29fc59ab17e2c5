#pragma once
// The KV of running sequences, or hidden states on their way to the host and back, on an emulated link. What comes in
// shares the link with the experts' copies, chunk by chunk; what goes out has the other direction, which is as fast,
// and a thread of its own.

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "services/worker/engine/kv_link.h"

namespace moestro::device {

class EmulatedKv final : public engine::KvLink {
 public:
  struct Options {
    uint64_t bytes_per_s = 0;
    Nanos latency{0};  ///< of each task, before its first byte
  };
  /// `mutex` is the link's. `wake`: there is something to bring in; called without the lock. `ended`: a task has ended;
  /// called with it. All outlive it.
  EmulatedKv(const Options& options, const Clock& clock, std::mutex& mutex, std::function<void()> wake,
             std::function<void()> ended);
  ~EmulatedKv() override;
  EmulatedKv(const EmulatedKv&) = delete;
  EmulatedKv& operator=(const EmulatedKv&) = delete;

  void begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer,
             std::span<const engine::KvMove> moves) override;
  void end_elsewhere(lanes::TaskId id) override;
  void take_ended(std::vector<lanes::TaskId>& ended) override;
  void wait(std::chrono::milliseconds timeout) override;
  void abandon() override;
  void take_carried(std::vector<engine::KvCarried>& out) override;

  // For the link's thread, with the lock held:

  /// Whether KV comes before an expert that this MoE layer waits for (nullopt: none waits).
  bool comes_first(std::optional<int32_t> waiting_layer) const;
  bool has_more_to_bring() const { return !in_.jobs.empty(); }
  int32_t next_layer() const { return in_.jobs.front().layer; }  ///< of the model, of what is brought next
  /// Carries the next chunk; returns when it has arrived, which is in `free_at`. The link can begin at `from`.
  void carry_in(std::unique_lock<std::mutex>& lock, Nanos from, Nanos& free_at) { carry(lock, in_, from, free_at); }
  bool has_ended() const { return !ended_.empty(); }

 private:
  struct Job {
    lanes::TaskId id = -1;
    lanes::TaskKind kind = lanes::TaskKind::kKvLoad;
    lanes::Lane lane = lanes::Lane::kHostToDevice;
    int32_t layer = -1, micro_batch = -1, moe_layer = 0;
    engine::KvMoves moves;
    bool begun = false;
  };
  /// One direction.
  struct Way {
    std::vector<Job> jobs;            ///< the first is under way
    std::vector<engine::KvMove> chunk;  ///< scratch of the thread that carries
    bool carrying = false;
    std::optional<engine::KvCarried> open;  ///< the last stretch, while more may follow
  };
  void run_out();
  void carry(std::unique_lock<std::mutex>& lock, Way& way, Nanos from, Nanos& free_at);
  static int64_t take_chunk(Job& job, std::vector<engine::KvMove>& chunk);
  void note(Way& way, const Job& job, int64_t bytes, Nanos begin, Nanos end);
  void close(Way& way);

  const Options options_;
  const Clock& clock_;
  std::mutex& mutex_;
  const std::function<void()> wake_, on_end_;
  std::condition_variable out_work_, changed_;
  Way in_, out_;
  std::vector<lanes::TaskId> ended_;
  std::vector<engine::KvCarried> carried_;
  bool stop_ = false;
  std::thread thread_;  ///< of what goes out; last: it uses all of the above
};

}  // namespace moestro::device
