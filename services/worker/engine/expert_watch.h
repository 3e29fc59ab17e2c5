#pragma once
// The interface for prefetching: gets the routes of a step as they happen, and can move experts before they are needed.
// What a step needs now is told to the source of the experts (store::BlobSource::need), not here.

#include <cstdint>
#include <span>

#include "common/activation/activation_matrix.h"
#include "common/ids.h"
#include "common/lanes/schedule.h"

namespace moestro::engine {

/// A sequence's rows of a step.
struct WatchedSequence {
  SequenceId id;
  bool decode = false;  ///< one token after the one that it sampled; false: a chunk of its prompt
  int32_t first_row = 0, rows = 0;
};

/// All calls come from the engine's thread, layer after layer.
class ExpertWatch {
 public:
  virtual ~ExpertWatch() = default;

  /// A new sequence begins after `tokens` tokens that were computed before. `counts`: their choices, by layer, then
  /// expert. Called before its first step.
  virtual void found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) {
    (void)sequence, (void)tokens, (void)counts;
  }
  virtual void begin_step(PlanId plan, std::span<const WatchedSequence> sequences) = 0;
  /// Asked once per step, after begin_step(), and after resume(). False: routed(), guessed() and foresee() are not
  /// called in this step.
  virtual bool wants_routes() const { return true; }
  /// The routers of `layer` have run, for all micro-batches, and the source knows what is needed. ids: [rows, top_k].
  /// `uses`: by expert, the sum of its rows' shares (store::UseWeight).
  virtual void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
                      std::span<const float> uses) = 0;
  /// How many of the next routers to ask for their choice on this layer's input; 0: none.
  virtual int32_t gate_lookahead() const { return 0; }
  /// The logits of the `layers` routers after `layer` for the stream at `layer`. logits: [rows, layers, experts].
  virtual void guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) {
    (void)layer, (void)layers, (void)logits;
  }
  /// Everything that is known at `layer` has been reported.
  virtual void foresee(MoeLayerId layer) = 0;
  /// The step has parked: another one begins and ends, or fails, before resume().
  virtual void park() {}
  /// It goes on after `layer`, the last one whose routers have run; -1: before the first.
  virtual void resume(int32_t layer) { (void)layer; }
  virtual void end_step() = 0;
  /// The step has failed: nothing of it is needed any more.
  virtual void abandon() = 0;
  /// The sequence has ended, at least on this worker.
  virtual void forget(SequenceId sequence) = 0;
};

}  // namespace moestro::engine
