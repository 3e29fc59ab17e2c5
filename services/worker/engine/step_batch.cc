#include "services/worker/engine/step_batch.h"

#include <algorithm>
#include <utility>

namespace moestro::engine {

void StepBatch::clear() {
  ids.clear();
  positions.clear();
  sequence_of.clear();
  row_share.clear();
  rows_of.clear();
  history_of.clear();
  attention.clear();
  memory.clear();
  micro_batches.clear();
  micro_batch_shapes.clear();
  cuts_ = true;
  logit_rows.clear();
  summed_rows.clear();
  cos.clear();
  sin.clear();
  context = furthest = 0;
}

void StepBatch::add(const StepPlan& plan, uint32_t index, TokenRange range, const SequenceState& state,
                    const RopeTables& rope, const VisiblePositions& visible) {
  const PlanSequence& sequence = plan.sequences[index];
  const auto first_row = static_cast<int64_t>(ids.size());
  const int32_t first_position = plan.tokens[range.first].position;
  rows_of.resize(std::max<size_t>(rows_of.size(), index + 1));
  history_of.resize(rows_of.size());
  history_of[index] = &state.history;
  rows_of[index] = {static_cast<uint32_t>(first_row), range.count};
  if (std::exchange(cuts_, false)) {
    micro_batches.push_back({{static_cast<uint32_t>(first_row), 0}, {static_cast<uint32_t>(attention.size()), 0}});
    micro_batch_shapes.emplace_back();
  }
  micro_batches.back().rows.count += range.count;
  ++micro_batches.back().sequences.count;
  const int64_t context_before = context;
  const int64_t cached = first_position;
  attention.push_back(
      {.first_token = first_row, .tokens = range.count, .first_position = first_position, .blocks = state.blocks,
       .state = sequence.state, .states = sequence.states});
  if (state.memory_tokens > 0)
    memory.push_back({.first_token = first_row, .tokens = range.count,
                      .first_position = encodes ? 0 : first_position, .blocks = state.memory,
                      .seen_end = encodes ? 0 : state.memory_tokens});
  if (sequence.state_sum_from >= 0) {
    const int64_t left_out = std::max<int64_t>(0, sequence.state_sum_from - first_position);
    summed_rows.push_back({index, first_row + left_out, range.count - left_out});
  }
  for (uint32_t i = 0; i < range.count; ++i) {
    const PlanToken& token = plan.tokens[range.first + i];
    ids.push_back(token.id == kSampledByParent ? state.last_sampled : token.id);
    positions.push_back(token.position);
    sequence_of.push_back(index);
    row_share.push_back(1.0F / static_cast<float>(range.count));
    const int64_t seen = encodes ? range.count : token.position + 1 + state.memory_tokens;
    context += visible.window > 0 ? std::min(seen, visible.sinks + visible.window) : seen;
    furthest = std::max<int64_t>(furthest, token.position);
    rope.append(token.position, cos, sin);
    const bool score = !sequence.score_targets.empty() && sequence.score_targets[i] >= 0;
    const bool sample = sequence.sample && i + 1 == range.count;
    if (score || sample)
      logit_rows.push_back({.row = static_cast<int32_t>(first_row + i),
                            .sequence = index,
                            .sample = sample,
                            .score = score,
                            .target = score ? sequence.score_targets[i] : -1});
  }
  micro_batch_shapes.back().tokens += range.count;
  micro_batch_shapes.back().context += context - context_before;
  micro_batch_shapes.back().cached +=
      visible.window > 0 ? std::min(cached, visible.sinks + visible.window) : cached;
}

}  // namespace moestro::engine
