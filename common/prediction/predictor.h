#pragma once
// Predicts from the routes so far which experts later layers will use. There are many predictors behind one interface.
// A live worker and the replay of a trace use the same objects.
//
// A predictor sees every layer of every iteration in order: begin_iteration(), then for each MoE layer routed() and, if
// a forecast is needed, forecast(), then end_iteration(). One thread owns it, and it allocates only when a sequence is
// new.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/activation/activation_matrix.h"
#include "common/prediction/forecast.h"
#include "common/status.h"

namespace moestro::prediction {

struct PredictorShape {
  int32_t layers = 0;   ///< MoE layers
  int32_t experts = 0;  ///< per layer
  int32_t top_k = 0;
};

/// A sequence's part of one iteration.
struct IterationSequence {
  uint64_t sequence = 0;
  bool decode = false;  ///< false: a chunk of its prompt
  int32_t tokens = 0;
};

/// What a sequence's tokens chose at one layer. `counts` has only cells of that layer, each expert once.
struct SequenceRoutes {
  uint64_t sequence = 0;
  std::span<const activation::ActivationCount> counts;
};

/// Scores of the next routers for this layer's input (gate look-ahead): what they would choose now.
struct GateGuess {
  int32_t layer = 0;                   ///< whose router was asked
  std::span<const float> probability;  ///< [experts]: that at least one token of the step chooses it
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual std::string_view name() const = 0;

  virtual void begin_iteration(std::span<const IterationSequence> sequences) = 0;
  /// The choices of all sequences at `layer`, in the order of begin_iteration().
  virtual void routed(int32_t layer, std::span<const SequenceRoutes> routes) = 0;
  /// How many of the next routers the engine should ask for this predictor; 0: none.
  virtual int32_t gate_lookahead() const { return 0; }
  virtual void guessed(int32_t layer, std::span<const GateGuess> guesses) { (void)layer, (void)guesses; }
  /// Overwrites `out` with what is known after routed(layer); layer -1: before the first layer of an iteration.
  virtual void forecast(int32_t layer, Forecast& out) = 0;
  virtual void end_iteration() = 0;
  /// The request has ended: its state is freed.
  virtual void end_sequence(uint64_t sequence) = 0;
  /// If off, nothing is learned across requests, so that it can be judged on them. A request's own past still counts.
  virtual void set_learning(bool on) { (void)on; }
};

}  // namespace moestro::prediction
