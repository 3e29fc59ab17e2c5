#pragma once
// What some layers keep of a sequence as a whole (the gated delta rule): slots, each with room for all such layers'
// state of one sequence, in f32 whatever the KV cache is in. The scheduler owns the assignment of slots. This knows at
// which position each of them is, so that a plan that would go on from another state is refused.

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "common/plan_parts.h"
#include "common/status.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

class SequenceStates {
 public:
  /// Allocates in `memory`, which outlives it. kExhausted: the message says how to ask for less.
  static Result<SequenceStates> create(const model::ModelSpec& spec, const EngineOptions& options,
                                       kernels::Memory& memory);

  int64_t slots() const { return static_cast<int64_t>(tokens_in_.size()); }  ///< 0: the model has no states
  int64_t interval() const { return interval_; }                             ///< model::StateBudget
  int64_t bytes() const { return buffers_.bytes(); }
  float* layer(size_t index) const { return layers_[index]; }  ///< slots of kernels::delta_state_floats(); null: none

  /// By slot: positions of a sequence whose state it has; -1: none.
  std::span<const int64_t> tokens_in() const { return tokens_in_; }
  void begin_plan();
  /// Notes what a sequence of this plan does to slots; in range. An error: another sequence of the plan needs them.
  Status claim(int64_t first_position, uint32_t read, std::span<const StateWrite> writes);
  /// What was written has no meaning.
  void lose(std::span<const StateWrite> writes);
  void forget_all();

 private:
  explicit SequenceStates(kernels::Memory& memory) : buffers_(memory) {}

  kernels::Buffers buffers_;
  int64_t interval_ = 0;
  std::vector<float*> layers_;
  std::vector<int64_t> tokens_in_;
  enum Use : uint8_t { kNone, kRead, kWritten };
  std::vector<Use> used_;  ///< by this plan
};

/// A layer's shape for its kernels.
kernels::DeltaShape delta_shape(const model::DeltaSpec& layer);

}  // namespace moestro::engine
