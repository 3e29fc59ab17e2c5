#pragma once
// Whether a plan can be run. Plans come from a peer. Everything that the engine relies on is checked here, and only
// here.

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

/// Checks that both blocks of every copy exist, and that at least one is in the cache that is computed with.
Status check_copies(const StepPlan& plan, const EngineLimits& limits);

/// Checks the plan as a whole: sizes, model, tokens that name no sequence or are not consecutive. Fills `ranges`, one
/// per sequence.
Status check_plan(const StepPlan& plan, const EngineLimits& limits, std::vector<TokenRange>& ranges);

/// Checks one sequence after its block table was updated: ids, positions, targets, KV that was never written. `filled`:
/// written tokens of each block of the cache.
Status check_sequence(const StepPlan& plan, const PlanSequence& sequence, TokenRange range, const SequenceState& state,
                      const EngineLimits& limits, std::span<const uint8_t> filled);

/// Checks which slots of states a checked sequence reads and writes. `tokens_in`: how many positions of a sequence each
/// slot has the state of; -1: none.
Status check_states(const PlanSequence& sequence, int64_t first, int64_t last, std::span<const int64_t> tokens_in);

/// Checks a source: its ids and positions, and that nothing of it is sampled or scored.
Status check_source(const StepPlan& plan, const PlanSequence& sequence, TokenRange range, const EngineLimits& limits);

/// Applies what the plan says of the memory of a sequence's source. Of a target, `filled` must have all of it. On an
/// error nothing is changed.
Status update_memory(const PlanSequence& sequence, TokenRange range, const EngineLimits& limits,
                     std::span<const uint8_t> filled, SequenceState& state);

/// Applies the plan's changes to the block table. On an error the table is unchanged.
Status update_blocks(const PlanSequence& sequence, const EngineLimits& limits, std::vector<uint32_t>& table);

/// The same for the sequence's token history for penalties.
Status update_history(const StepPlan& plan, const PlanSequence& sequence, const EngineLimits& limits,
                      SequenceState& state);

/// Whether the sequence should continue with what the parent plan sampled, and that token has ended it.
bool has_ended(const StepPlan& plan, const PlanSequence& sequence, TokenRange range, const SequenceState& state);

}  // namespace moestro::engine
