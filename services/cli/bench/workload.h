#pragma once
// Random sequences on an engine: prompts, then one token each, step by step. Of an encoder-decoder model prompts are
// sources, and then targets begin.

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "services/cli/bench/step_cost.h"
#include "services/worker/engine/engine.h"

namespace moestro::cli {

/// `sequences` of random tokens, each of at most `length`. Tokens are drawn at random, not taken from the engine's
/// samples, because a random model repeats itself when it gets its own choices, and every measurement should have the
/// same tokens. The engine's sampling is still computed.
class Workload {
 public:
  /// `source`: of an encoder-decoder model, the length of each source; `length` is that of a target then.
  Workload(engine::Engine& engine, const Clock& clock, int64_t sequences, int64_t length, int64_t source = 0);

  /// Computes the first `tokens` of every sequence, in steps as large as the engine takes, with logits of each last
  /// token.
  Result<StepCost> prompts(int64_t tokens);
  /// Computes the next token of every sequence, with logits.
  Result<StepCost> decode();

 private:
  void begin_step();
  engine::PlanSequence& add_sequence(int64_t sequence);
  void add_token(int64_t sequence, int64_t position);
  void add_source(int64_t sequence);
  Result<StepCost> sources();
  void add(int64_t sequence, int64_t first, int64_t tokens, bool sample);
  Result<StepCost> run_step();

  engine::Engine& engine_;
  const Clock& clock_;
  int64_t sequences_, source_, memory_each_, blocks_each_;  ///< of a sequence: tokens, blocks, blocks in all
  int64_t position_ = 0;  ///< of the next token to decode
  uint64_t next_plan_ = 1;
  engine::StepPlan plan_;
  engine::StepOutcome outcome_;
  std::vector<int64_t> positions_;
  std::set<std::pair<uint32_t, uint32_t>> experts_;
};

}  // namespace moestro::cli
