#pragma once
// Attention on the host, for a device whose KV cache has its home in host memory (the cgo schedule).
//
// The link carries queries, keys and values of a micro-batch to host memory. A thread of its own writes keys and values
// to the cache there and attends, in the order in which micro-batches come. The link carries the sums back. So the
// device computes for other micro-batches meanwhile.

#include <array>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/lanes/timeline.h"
#include "services/worker/engine/kv_link.h"
#include "services/worker/engine/layer_math.h"

namespace moestro::engine {

/// What of a model the host cannot attend with ("latent attention (MLA)"); empty: it can.
std::string not_on_host(const model::ModelSpec& spec);
/// kUnsupported, by name: this model, or these settings.
Status check_host_attention(const model::ModelSpec& spec, const EngineOptions& options);

class HostAttention {
 public:
  /// `math` is of the device, and has its rows. `ops` computes on the host; while a step runs nothing else uses it. All
  /// outlive it.
  HostAttention(const MathParts& parts, LayerMath& math, kernels::Ops& ops, KvLink& link, const Clock& clock,
                int64_t step_tokens_max);
  ~HostAttention();
  HostAttention(const HostAttention&) = delete;
  HostAttention& operator=(const HostAttention&) = delete;

  /// Whether all buffers could be allocated.
  Status status() const { return buffers_.status(); }

  /// Whether this is a task of it, which start() begins.
  static bool does(const lanes::Task& task) { return lanes::is_drawn_apart(task) && !lanes::is_kv_move(task); }

  /// `batch` outlives the step.
  void begin(const StepBatch& batch);
  void start(lanes::TaskId id, const lanes::Task& task);
  /// Tasks that were started and not taken by take_ended().
  bool waits() const { return under_way_ > 0; }
  void take_ended(std::vector<lanes::TaskId>& ended);
  /// On return nothing of the step is under way.
  void abandon();

  /// Draws what the host has computed since the last call. No step runs.
  void draw(lanes::Timeline* timeline);

 private:
  struct Job {
    lanes::TaskId id = -1;
    lanes::Task task;
  };
  /// What a micro-batch moves, while it does.
  struct Moves {
    std::array<KvMove, 3> out;
    KvMove in;
  };
  void run();
  void attend(const lanes::Task& task);
  const MicroBatch& micro_batch(const lanes::Task& task) const {
    return batch_->micro_batches[static_cast<size_t>(task.micro_batch)];
  }
  std::span<const KvMove> moves_out(const lanes::Task& task);
  std::span<const KvMove> moves_in(const lanes::Task& task);

  MathParts p_;
  LayerMath& math_;
  kernels::Ops& ops_;
  KvLink& link_;
  const Clock& clock_;
  std::vector<int32_t> moe_layer_;  ///< by layer: the first MoE layer that is not before it
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  AttentionRows rows_;              ///< in host memory
  std::vector<std::vector<float>> sink_logits_;  ///< by layer, in host memory; empty: it has none
  std::vector<Moves> moves_;        ///< by micro-batch
  std::vector<kernels::AttentionSequence> chunks_;  ///< scratch of the thread
  int under_way_ = 0;

  std::mutex mutex_;
  std::condition_variable work_, idle_;
  std::vector<Job> jobs_;           ///< under the lock, as what follows
  bool computing_ = false, stop_ = false;
  std::vector<lanes::Slice> slices_;
  std::thread thread_;              ///< last: it uses all of the above
};

}  // namespace moestro::engine
