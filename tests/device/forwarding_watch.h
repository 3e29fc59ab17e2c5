#pragma once
// An ExpertWatch in front of another one, for tests that count or time what it is told.

#include "services/worker/engine/expert_watch.h"

namespace moestro::device::testing {

class ForwardingWatch : public engine::ExpertWatch {
 public:
  /// `inner` outlives it.
  explicit ForwardingWatch(engine::ExpertWatch& inner) : inner_(inner) {}

  void found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) override {
    inner_.found(sequence, tokens, counts);
  }
  void begin_step(PlanId plan, std::span<const engine::WatchedSequence> sequences) override {
    inner_.begin_step(plan, sequences);
  }
  bool wants_routes() const override { return inner_.wants_routes(); }
  void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
              std::span<const float> uses) override {
    inner_.routed(layer, ids, experts, uses);
  }
  int32_t gate_lookahead() const override { return inner_.gate_lookahead(); }
  void guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) override {
    inner_.guessed(layer, layers, logits);
  }
  void foresee(MoeLayerId layer) override { inner_.foresee(layer); }
  void end_step() override { inner_.end_step(); }
  void abandon() override { inner_.abandon(); }
  void forget(SequenceId sequence) override { inner_.forget(sequence); }

 private:
  engine::ExpertWatch& inner_;
};

}  // namespace moestro::device::testing
