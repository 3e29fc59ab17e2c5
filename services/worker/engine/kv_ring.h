#pragma once
// The KV of a step's micro-batches on a device, where the home of the KV cache is host memory.
//
// Each layer and micro-batch has one of the device's places in turn (lanes::kv_place). Loading copies the blocks there
// that its sequences attend to; attention reads and writes them there; saving copies those back that it wrote. Blocks
// that stay on the device are used where they are. Blocks move whole.

#include <cstdint>
#include <span>
#include <vector>

#include "common/lanes/schedule.h"
#include "common/model/model_spec.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/kv_link.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

/// The blocks [first, last) of a sequence's table that its queries see in a layer, and whether a block between them is
/// among those.
struct SeenBlocks {
  int64_t sinks_end = 0;     ///< blocks before it have sinks
  int64_t window_begin = 0;  ///< blocks from it on are in the window
  int64_t end = 0;
  bool sees(int64_t index) const { return index < end && (index < sinks_end || index >= window_begin); }
};
SeenBlocks seen_blocks(const kernels::AttentionShape& shape, int64_t first_position, int64_t tokens);

/// Blocks of a place that a sequence takes at most, in any layer.
int64_t place_blocks_of(const KvCache& cache, std::span<const uint32_t> table, int64_t first_position, int64_t tokens);

class KvRing {
 public:
  /// All outlive it. `poison`: tests; a place of this memory is filled with NaN when its contents have been saved.
  KvRing(const KvCache& cache, const model::ModelSpec& spec, KvLink& link, kernels::Memory* poison);

  /// `batch` outlives the step. Its micro-batches fit the places.
  void begin(const StepBatch& batch);
  /// Begins a task that moves KV (lanes::is_kv_move). False: there is nothing to move, and it has ended.
  bool start(lanes::TaskId id, const lanes::Task& task);
  /// The sequences of a micro-batch, with block tables for the layer's view of the device's memory. After its load, if
  /// it has one. Valid until its place is another's.
  std::span<const kernels::AttentionSequence> sequences(int32_t layer, int32_t micro_batch);

  /// Tasks that were started and not taken by take_ended().
  bool waits() const { return under_way_ > 0; }
  void take_ended(std::vector<lanes::TaskId>& ended);
  void abandon();

  int64_t loaded_bytes() const { return loaded_; }  ///< in this step
  int64_t saved_bytes() const { return saved_; }

 private:
  struct Place {
    int32_t layer = -1, micro_batch = -1;  ///< whose it is
    lanes::TaskId saving = -1;
    std::vector<uint32_t> tables;          ///< of all its sequences, one after another
    std::vector<kernels::AttentionSequence> sequences;
    std::vector<KvMove> moves;             ///< of the task that is under way
  };
  int32_t place_of(int32_t layer, int32_t micro_batch) const {
    return lanes::kv_place(layer, micro_batch, static_cast<int32_t>(batch_->micro_batches.size()));
  }
  std::span<const kernels::AttentionSequence> home_sequences(int32_t micro_batch) const;
  Place& obtain(int32_t layer, int32_t micro_batch);
  void add_table(const kernels::AttentionSequence& sequence, int32_t place, int64_t& used);
  void add_saves(Place& place, int32_t layer, int32_t micro_batch);
  static void add_move(std::vector<KvMove>& moves, KvMove move);
  void poison(int32_t place);

  const KvCache& cache_;
  KvLink& link_;
  kernels::Memory* const poison_;
  std::vector<int32_t> moe_layer_;  ///< by layer: the first MoE layer that is not before it
  const StepBatch* batch_ = nullptr;
  std::vector<Place> places_;
  std::vector<uint64_t> seen_;      ///< by block: the obtain() that gave it a block of the place
  std::vector<uint32_t> given_;     ///< by block: which
  uint64_t turn_ = 0;
  int under_way_ = 0;
  int64_t loaded_ = 0, saved_ = 0;
};

}  // namespace moestro::engine
