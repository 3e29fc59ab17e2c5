#pragma once
// Carries KV, and hidden states, between host memory and a device's own, on the link that also carries experts.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/lanes/task_graph.h"
#include "common/lanes/timeline.h"
#include "common/status.h"

namespace moestro::engine {

struct KvMove {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
};

/// Moves that a link takes piece by piece.
class KvMoves {
 public:
  KvMoves(std::span<const KvMove> moves) : moves_(moves) {}  // NOLINT: moves are such a list
  bool is_done() const { return moves_.empty(); }
  void end() { moves_ = {}, offset_ = 0; }
  /// What comes next, at most so many bytes of one move. Not after the last.
  KvMove take(int64_t bytes_max) {
    const KvMove& move = moves_.front();
    const KvMove part{move.to + offset_, move.from + offset_, std::min(bytes_max, move.bytes - offset_)};
    offset_ += part.bytes;
    if (offset_ == move.bytes) moves_ = moves_.subspan(1), offset_ = 0;
    return part;
  }

 private:
  std::span<const KvMove> moves_;  ///< not taken whole
  int64_t offset_ = 0;             ///< in the first
};

/// A stretch of time in which the link carried KV, or hidden states.
struct KvCarried {
  lanes::TaskKind kind = lanes::TaskKind::kKvLoad;
  lanes::Lane lane = lanes::Lane::kHostToDevice;
  int32_t layer = -1, micro_batch = -1;
  int64_t bytes = 0;
  Nanos begin{0}, end{0};
};

/// All calls but end_elsewhere() come from the thread that runs the steps.
class KvLink {
 public:
  virtual ~KvLink() = default;
  /// Begins the moves of a task, in order, on its lane. `moves` and the memory that they name stay as they are until it
  /// has ended. `moe_layer`: the first MoE layer that is not before the task's layer; experts that earlier ones wait
  /// for overtake the task. Tasks of a lane end in the order in which they began.
  virtual void begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer, std::span<const KvMove> moves) = 0;
  /// A task that the link does not carry has ended: take_ended() names it too, and whoever waits for the link wakes.
  /// By any thread.
  virtual void end_elsewhere(lanes::TaskId id) = 0;
  /// Appends the tasks that have ended since the last call.
  virtual void take_ended(std::vector<lanes::TaskId>& ended) = 0;
  /// Waits until there is something for take_ended(), for no longer than `timeout`.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  /// Drops what has not been carried. On return the link touches no memory of any move.
  virtual void abandon() = 0;
  /// What the link has carried since the last call.
  virtual void take_carried(std::vector<KvCarried>& out) = 0;
  /// An error: the device has failed, and nothing that was begun ends.
  virtual Status status() const { return Status::ok(); }
};

/// Draws what the link has carried since the last call. `timeline` may be null.
void draw_kv(KvLink& link, std::vector<KvCarried>& scratch, lanes::Timeline* timeline);

}  // namespace moestro::engine
