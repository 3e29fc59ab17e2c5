#pragma once
// Who looks ahead: sees what a step routes as it happens, and moves experts before they are wanted.

#include <cstdint>
#include <span>

#include "common/activation/activation_matrix.h"
#include "common/ids.h"
#include "common/lanes/schedule.h"

namespace moestro::engine {

/// A sequence's rows of a step.
struct WatchedSequence {
  SequenceId id;
  bool decode = false;  ///< one token after what it sampled; false: a chunk of its prompt
  int32_t first_row = 0, rows = 0;
};

/// All calls come from the engine's thread, layer after layer.
class ExpertWatch {
 public:
  virtual ~ExpertWatch() = default;

  /// A sequence that is new here begins behind `tokens` tokens that were computed before: what they chose, by layer,
  /// then expert. Before the step that it begins in.
  virtual void found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) {
    (void)sequence, (void)tokens, (void)counts;
  }
  virtual void begin_step(PlanId plan, std::span<const WatchedSequence> sequences) = 0;
  /// The router of `layer` has run and nothing of it was asked for yet. ids: [rows, top_k]. `uses`: by expert, the sum
  /// of its rows' shares (store::UseWeight).
  virtual void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
                      std::span<const float> uses) = 0;
  /// How many of the next routers to ask for their choice on this layer's input; 0: none.
  virtual int32_t gate_lookahead() const { return 0; }
  /// What the `layers` routers after `layer` would choose for the stream as it is there. logits: [rows, layers,
  /// experts].
  virtual void guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) {
    (void)layer, (void)layers, (void)logits;
  }
  /// All that is known at `layer` has been said.
  virtual void foresee(MoeLayerId layer) = 0;
  virtual void end_step() = 0;
  /// The step has failed: nothing of it is wanted any more.
  virtual void abandon() = 0;
  /// The sequence is over, here at least.
  virtual void forget(SequenceId sequence) = 0;
};

}  // namespace moestro::engine
