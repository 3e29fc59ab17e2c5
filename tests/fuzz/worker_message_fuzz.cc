// fuzz-deps: moestro_worker_wire moestro_wire
// A message to a worker, and what its engine checks before it trusts a plan.

#include "common/check.h"
#include "services/worker/engine/plan_check.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace engine = moestro::engine;

namespace {

/// What Engine::step does before it computes; then every token must be one that the engine can index with.
void check(const engine::StepPlan& plan, const engine::VisiblePositions& visible) {
  const engine::EngineLimits limits{.model = plan.model,
                                    .vocab = 32,
                                    .kv_blocks = 8,
                                    .context_max = 64,
                                    .step_tokens_max = 64,
                                    .step_sequences_max = 8,
                                    .visible = visible};
  // Blocks in every state of being written.
  const std::vector<uint8_t> filled = {16, 16, 16, 7, 0, 16, 1, 15};
  std::vector<engine::TokenRange> ranges;
  if (!engine::check_plan(plan, limits, ranges).is_ok()) return;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    engine::SequenceState state;
    if (engine::has_ended(plan, plan.sequences[i], ranges[i], state)) continue;
    if (!engine::update_blocks(plan.sequences[i], limits, state.blocks).is_ok()) continue;
    if (!engine::update_history(plan, plan.sequences[i], limits, state).is_ok()) continue;
    if (!engine::check_sequence(plan, plan.sequences[i], ranges[i], state, limits, filled).is_ok()) continue;
    MOESTRO_CHECK(plan.sequences[i].state_sum_from <= plan.tokens[ranges[i].first + ranges[i].count - 1].position,
                  "a state to sum up");
    for (uint32_t t = ranges[i].first; t < ranges[i].first + ranges[i].count; ++t) {
      const engine::PlanToken& token = plan.tokens[t];
      MOESTRO_CHECK(token.id >= 0 && token.id < limits.vocab, "an id of the vocabulary");
      MOESTRO_CHECK(token.position >= 0 && static_cast<size_t>(token.position / 16) < state.blocks.size(),
                    "a position with a block");
      MOESTRO_CHECK(state.blocks[static_cast<size_t>(token.position / 16)] < 8, "a block of the cache");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto said = moestro::worker::read_orchestrator_message({reinterpret_cast<const std::byte*>(data), size});
  if (!said.is_ok()) return 0;
  if (const auto* update = std::get_if<moestro::worker::HistoryUpdate>(&*said);
      update != nullptr && update->capacity < 1024) {
    moestro::activation::ActivationHistory history({2, 4, 1}, 0);
    (void)update->apply(history).is_ok();
  }
  if (const auto* message = std::get_if<moestro::worker::PlanMessage>(&*said);
      message != nullptr && message->plan.is_ok())
    for (const auto& visible : {engine::VisiblePositions{}, engine::VisiblePositions{.sinks = 3, .window = 20}})
      check(*message->plan, visible);
  return 0;
}
