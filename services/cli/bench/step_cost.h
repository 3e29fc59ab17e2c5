#pragma once
// What a step costs in bytes of weights and operations. Exact, from the model's shape and the routes that occurred.

#include <cstdint>
#include <span>

#include "common/model/model_spec.h"
#include "services/worker/engine/engine.h"

namespace moestro::cli {

/// Sums over steps.
struct StepCost {
  double weight_bytes = 0;  ///< every weight that a step needs, once per step
  double operations = 0;    ///< two for each multiply-add of a product or of attention
  double tokens = 0;
  double seconds = 0;       ///< in the engine; filled by the caller, as the next two
  double stalled_seconds = 0;
  double host_experts = 0;  ///< that the CPU computed for a GPU
  StepCost& operator+=(const StepCost& other) {
    weight_bytes += other.weight_bytes;
    operations += other.operations;
    tokens += other.tokens;
    seconds += other.seconds;
    stalled_seconds += other.stalled_seconds;
    host_experts += other.host_experts;
    return *this;
  }
};

/// A step of an encoder-decoder model: of sources, or of targets that see so many positions of a memory.
struct StackStep {
  bool sources = false;
  int64_t memory = 0;
};

/// `positions`: of the step's tokens, of a source for all of them its last one's; `logit_rows`: tokens whose logits
/// were computed; `experts_used`: pairs of layer and expert that at least one token was routed to; `visible`: of all
/// layers, as the engine's limits say.
StepCost step_cost(const model::ModelSpec& spec, const engine::Engine::WeightTraffic& traffic,
                   std::span<const int64_t> positions, int64_t logit_rows, int64_t experts_used,
                   const engine::VisiblePositions& visible, StackStep stack = {});

/// Average number of tokens of an expert in a step of `tokens`, at least 1.
int64_t tokens_per_expert(const model::ModelSpec& spec, int64_t tokens);

}  // namespace moestro::cli
