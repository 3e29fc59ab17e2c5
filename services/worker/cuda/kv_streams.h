#pragma once
// Copies blocks of the KV cache between a device's memory and the host's on two streams, one for each direction, in
// parallel with computation.
//
// The effect is that of making a plan's copies one after another, but copies overlap where possible. In each layer all
// copies out come before all copies in, so that a block can be saved and then overwritten. Copies out of the next layer
// overlap with copies in. The computation of a layer waits only for that layer's copies. A copy that depends on an
// earlier one begins a new round, which waits for the whole previous round.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::cuda {

class KvStreams {
 public:
  /// Both outlive it. A cache without blocks in host memory needs no streams; copies within the device are then queued
  /// on the compute stream.
  KvStreams(kernels::cuda::CudaOps& ops, const engine::KvCache& cache);
  ~KvStreams();
  KvStreams(const KvStreams&) = delete;
  KvStreams& operator=(const KvStreams&) = delete;

  /// Queues the copies after everything on the compute stream. Errors are reported by CudaOps.
  void copy(std::span<const KvCopy> copies);
  /// Makes later work on the compute stream wait for the layer's copies.
  void before_layer(size_t layer);
  /// Whether there is anything to wait for.
  bool pending() const { return pending_; }
  /// The computation of all layers has ended, or is void: there is nothing to wait for until the next copies.
  void settled() { pending_ = false; }

 private:
  /// Blocks [from, from + count) to [to, to + count).
  struct Run {
    uint32_t from = 0, to = 0, count = 0;
  };
  static void add(std::vector<Run>& runs, KvCopy copy);
  bool goes_out(KvCopy c) const { return c.from < device_blocks_ && c.to >= device_blocks_; }
  bool comes_in(KvCopy c) const { return c.from >= device_blocks_ && c.to < device_blocks_; }
  /// Whether it depends on a copy in this round.
  bool needs_new_round(KvCopy out) const { return touched_[out.from] == round_ || touched_[out.to] == round_; }
  void end_round();
  void copy_within(KvCopy copy);
  void follow(MoestroCudaStream later, MoestroCudaStream earlier);

  kernels::cuda::DeviceQueue& queue_;
  const engine::KvCache& cache_;
  uint32_t device_blocks_;
  MoestroCudaStream in_ = nullptr, out_ = nullptr;
  MoestroCudaEvent order_ = nullptr;              ///< makes one stream wait for another; recorded again each time
  std::vector<MoestroCudaEvent> out_done_, done_; ///< by layer: its copies out; all of them
  std::vector<uint32_t> touched_;  ///< by block: the round in which a copy that came in read or wrote it last
  uint32_t round_ = 1;
  std::vector<Run> outs_, ins_;                   ///< of this round
  bool pending_ = false;
};

}  // namespace moestro::cuda
