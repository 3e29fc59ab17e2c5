#pragma once
// Blocks of the KV cache on their way between a device's memory and the host's: two streams, one each way, beside the
// computing.
//
// A plan's copies are to be made one after the other. What of them may overlap does: of each layer all copies out go
// before all copies in (so that a block may be emptied and filled again), while those of the next layer go out the next
// come in, and the computing of a layer waits for that layer's alone. A copy that must not change places with one
// before it begins a new round: it waits for the whole of the round before.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::cuda {

class KvStreams {
 public:
  /// Both outlive it. A cache without blocks in host memory needs no streams: copies within the device are then queued
  /// among the computing.
  KvStreams(kernels::cuda::CudaOps& ops, const engine::KvCache& cache);
  ~KvStreams();
  KvStreams(const KvStreams&) = delete;
  KvStreams& operator=(const KvStreams&) = delete;

  /// Queues them behind all that has been queued on the compute stream. Errors are CudaOps'.
  void copy(std::span<const engine::KvCopy> copies);
  /// What is queued on the compute stream from here on finds the layer's blocks copied.
  void before_layer(size_t layer);
  /// Whether there is anything to wait for.
  bool pending() const { return pending_; }
  /// The computing of all layers has ended, or nothing of it counts: there is nothing to wait for until the next
  /// copies.
  void settled() { pending_ = false; }

 private:
  /// Blocks [from, from + count) to [to, to + count).
  struct Run {
    uint32_t from = 0, to = 0, count = 0;
  };
  static void add(std::vector<Run>& runs, engine::KvCopy copy);
  bool goes_out(engine::KvCopy c) const { return c.from < device_blocks_ && c.to >= device_blocks_; }
  bool comes_in(engine::KvCopy c) const { return c.from >= device_blocks_ && c.to < device_blocks_; }
  /// Whether it would not be the same copy before those that come in during this round.
  bool needs_new_round(engine::KvCopy out) const { return touched_[out.from] == round_ || touched_[out.to] == round_; }
  void end_round();
  void copy_within(engine::KvCopy copy);
  void follow(MoestroCudaStream later, MoestroCudaStream earlier);

  kernels::cuda::DeviceQueue& queue_;
  const engine::KvCache& cache_;
  uint32_t device_blocks_;
  MoestroCudaStream in_ = nullptr, out_ = nullptr;
  MoestroCudaEvent order_ = nullptr;              ///< of one stream that another follows; recorded anew each time
  std::vector<MoestroCudaEvent> out_done_, done_; ///< by layer: its copies out; all of them
  std::vector<uint32_t> touched_;  ///< by block: the round in which a copy that came in read or wrote it last
  uint32_t round_ = 1;
  std::vector<Run> outs_, ins_;                   ///< of this round
  bool pending_ = false;
};

}  // namespace moestro::cuda
