#include "services/worker/engine/sequence_states.h"

#include <algorithm>
#include <string>

#include "common/model/mixer.h"

namespace moestro::engine {

Result<SequenceStates> SequenceStates::create(const model::ModelSpec& spec, const EngineOptions& options,
                                              kernels::Memory& memory) {
  SequenceStates states(memory);
  const model::StateBudget budget =
      model::state_budget(spec, options.kv_tokens, options.kv_dtype, options.state_slots);
  states.interval_ = budget.interval;
  for (const model::LayerSpec& layer : spec.layers) {
    float* data = nullptr;
    if (layer.delta) {
      const int64_t floats = budget.slots * kernels::delta_state_floats(delta_shape(*layer.delta));
      data = states.buffers_.make<float>(floats);
      if (data == nullptr)
        return exhausted("no memory for the states of " + std::to_string(budget.slots) +
                         " sequences; ask for fewer with --state-slots");
      if (options.poison_kv) states.buffers_.memory().fill(data, 0xff, floats * static_cast<int64_t>(sizeof(float)));
    }
    states.layers_.push_back(data);
  }
  states.tokens_in_.assign(static_cast<size_t>(budget.slots), -1);
  states.used_.assign(states.tokens_in_.size(), kNone);
  return states;
}

void SequenceStates::begin_plan() { std::fill(used_.begin(), used_.end(), kNone); }

Status SequenceStates::claim(int64_t first_position, uint32_t read, std::span<const StateWrite> writes) {
  if (used_.empty()) return Status::ok();
  const bool reads = first_position > 0;
  bool free = !reads || used_[read] != kWritten;
  for (const StateWrite& w : writes) free = free && used_[w.slot] == kNone;
  if (!free) return invalid_argument("two sequences of a plan use a state slot, and one of them writes it");
  if (reads) used_[read] = kRead;
  for (const StateWrite& w : writes) used_[w.slot] = kWritten, tokens_in_[w.slot] = w.tokens;
  return Status::ok();
}

void SequenceStates::lose(std::span<const StateWrite> writes) {
  for (const StateWrite& w : writes)
    if (w.slot < tokens_in_.size()) tokens_in_[w.slot] = -1;
}

void SequenceStates::forget_all() { std::fill(tokens_in_.begin(), tokens_in_.end(), -1); }

kernels::DeltaShape delta_shape(const model::DeltaSpec& layer) {
  return {.key_heads = layer.key_heads, .value_heads = layer.value_heads, .key_dim = layer.key_dim,
          .value_dim = layer.value_dim, .conv = layer.conv, .in_turn = layer.in_turn};
}

}  // namespace moestro::engine
