#pragma once
// Whether a plan can be run. Plans come from a peer: everything the engine relies on is checked here, and nowhere else.

#include <span>
#include <vector>

#include "services/worker/engine/engine_options.h"
#include "services/worker/engine/sequence_table.h"
#include "services/worker/engine/step_plan.h"

namespace moestro::engine {

/// The tokens of one sequence in a plan.
struct TokenRange {
  uint32_t first = 0, count = 0;
};

/// Whether both blocks of every copy are there, and one of them at least is computed with.
Status check_copies(const StepPlan& plan, const EngineLimits& limits);

/// What is wrong with the plan as a whole: sizes, model, tokens that name no sequence or are not consecutive.
/// Fills `ranges`, one per sequence.
Status check_plan(const StepPlan& plan, const EngineLimits& limits, std::vector<TokenRange>& ranges);

/// What is wrong with one sequence, after its block table was brought up to date: ids, positions, targets, KV that was
/// never written. `filled`: written tokens of each block of the cache.
Status check_sequence(const StepPlan& plan, const PlanSequence& sequence, TokenRange range, const SequenceState& state,
                      const EngineLimits& limits, std::span<const uint8_t> filled);

/// Applies the plan's changes to the block table, or says why they cannot be; then the table is as before.
Status update_blocks(const PlanSequence& sequence, const EngineLimits& limits, std::vector<uint32_t>& table);

/// Likewise for what penalties see of the sequence.
Status update_history(const StepPlan& plan, const PlanSequence& sequence, const EngineLimits& limits,
                      SequenceState& state);

/// Whether the sequence was to go on with what the parent plan sampled, and that has ended it.
bool has_ended(const StepPlan& plan, const PlanSequence& sequence, TokenRange range, const SequenceState& state);

}  // namespace moestro::engine
