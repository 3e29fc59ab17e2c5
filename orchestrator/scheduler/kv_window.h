#pragma once
// Which KV blocks of a sequence a worker's queries see. Without a window, they see all of them.

#include <algorithm>
#include <cstdint>

#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

class KvWindow {
 public:
  explicit KvWindow(const WorkerLimits& limits)
      : total_(limits.kv_blocks),
        block_(limits.kv_block_tokens),
        sinks_(limits.kv_sinks),
        window_(limits.kv_window),
        context_(limits.context_max) {}

  /// Blocks that every query sees.
  int64_t sink_blocks() const { return window_ > 0 ? ceil_blocks(sinks_) : 0; }
  /// The first block, without sinks, that a query at `position` or later sees.
  int64_t first_seen(int64_t position) const {
    return window_ > 0 ? std::max<int64_t>(0, position - window_ + 1) / block_ : 0;
  }
  /// Whether a query at `position` or later sees any of `block`.
  bool sees(int64_t block, int64_t position) const { return block < sink_blocks() || block >= first_seen(position); }

  /// The most tokens that a sequence can compute in one step if it is alone and has `computed` tokens.
  int64_t chunk_max(int64_t computed) const { return std::max(sliding_chunk(), total_ * block_ - computed); }
  /// The most blocks that a sequence of `length` tokens holds at once while it is computed `chunk` tokens a step.
  int64_t blocks_at_most(int64_t length, int64_t chunk) const {
    if (sliding_chunk() < 1) return ceil_blocks(length);
    return std::min(ceil_blocks(length),
                    sink_blocks() + ceil_blocks(window_ + std::min(chunk, sliding_chunk()) - 2) + 1);
  }
  /// The longest sequence that the worker can hold.
  int64_t length_max() const { return sliding_chunk() >= 1 ? context_ : std::min(context_, total_ * block_); }

 private:
  int64_t ceil_blocks(int64_t tokens) const { return (tokens + block_ - 1) / block_; }
  /// The largest chunk that fits together with the window before it, for any length of the sequence; below 1: none.
  /// Positions [p - window + 1, p + chunk) are in at most ceil((window + chunk - 2) / block) + 1 blocks.
  int64_t sliding_chunk() const { return window_ > 0 ? (total_ - sink_blocks() - 1) * block_ - window_ + 2 : 0; }

  int64_t total_, block_, sinks_, window_, context_;
};

}  // namespace moestro::orchestrator
