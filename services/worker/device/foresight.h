#pragma once
// Connects the engine, a predictor and the memories that experts are brought to: gives the routes of a step to the
// predictor, and its forecasts to the memories.

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <vector>

#include "common/lanes/timeline.h"
#include "common/prediction/predictor.h"
#include "common/tier/forecast_need.h"
#include "services/worker/device/expert_tier.h"
#include "services/worker/engine/expert_watch.h"

namespace moestro::device {

class Foresight final : public engine::ExpertWatch, public lanes::ExpertArrivals {
 public:
  /// `predictor`: null for none; experts are then brought on demand. `tier`: the memory that the engine takes experts
  /// from; `below`: the one that it is filled from, if that is filled ahead too, else null. Both have the same layers
  /// and experts and outlive it. `top_k`: experts of a token.
  Foresight(ExpertTier& tier, std::unique_ptr<prediction::Predictor> predictor, int64_t top_k,
            ExpertTier* below = nullptr);

  /// What link and drive bring goes to it, and it asks this why an expert was late. May be null; outlives this.
  /// `model_layers`: MoE layer -> the model's layer.
  void set_timeline(lanes::Timeline* timeline, std::vector<int32_t> model_layers);

  void found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) override;
  void begin_step(PlanId plan, std::span<const engine::WatchedSequence> sequences) override;
  /// False while nothing can be missing (tier::Need::kNothing), and without a predictor. Memories are then looked at
  /// once a step: what was brought since the step before wakes the predictor.
  bool wants_routes() const override { return told_; }
  void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
              std::span<const float> uses) override;
  /// 0 while the predictor is not asked for forecasts; at first, the most that it will ask for.
  int32_t gate_lookahead() const override {
    return predictor_ && wants_forecasts() ? predictor_->gate_lookahead() : 0;
  }
  void guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) override;
  void foresee(MoeLayerId layer) override;
  void park() override;
  void resume(int32_t layer) override;
  void end_step() override;
  void abandon() override;
  void forget(SequenceId sequence) override;

  lanes::Lateness lateness(int32_t layer, int32_t expert) override;
  uint32_t copy_of(int32_t layer, int32_t expert) override {
    return stages_.front().tier->copies(key_of(layer, expert));
  }

  prediction::Predictor* predictor() const { return predictor_.get(); }

 private:
  /// A memory, and whether what is lately missing there is worth forecasts.
  struct Stage {
    explicit Stage(ExpertTier& of) : tier(&of), need(of.fits_all()) {}
    bool wants_forecasts() const { return need.need() == tier::Need::kForecasts; }
    ExpertTier* tier;
    tier::ForecastNeed need;
  };
  bool wants_forecasts() const { return std::ranges::any_of(stages_, &Stage::wants_forecasts); }
  tier::Key key_of(int32_t model_layer, int32_t expert) const;
  void forecast(int32_t layer);
  void count(MoeLayerId layer, std::span<const int32_t> ids);
  void draw_copies();
  void begin_iteration();

  const int32_t layers_, experts_;
  std::vector<Stage> stages_;
  std::unique_ptr<prediction::Predictor> predictor_;
  const int64_t top_k_;
  bool told_ = false;  ///< the predictor is told of this step
  PlanId plan_;
  bool scan_ = false;  ///< most of the step's tokens belong to prompts
  prediction::Forecast forecast_;
  lanes::Timeline* timeline_ = nullptr;
  std::vector<int32_t> model_layers_;

  struct Parked {
    PlanId plan;
    bool scan = false, told = false;
  };
  Parked parked_;  ///< the step that another one has overtaken
  std::vector<engine::WatchedSequence> sequences_;             ///< of a step that the predictor is told of
  std::vector<engine::WatchedSequence> parked_sequences_;      ///< of that which has parked
  std::unordered_set<SequenceId> running_;                     ///< seen, and not ended
  std::vector<prediction::IterationSequence> iteration_;
  std::vector<tier::DeviceTier::Wanted> wanted_;
  std::vector<activation::ActivationCount> counts_;            ///< of a layer, sequence after sequence
  std::vector<uint32_t> first_count_;                          ///< sequence -> its first entry in counts_, and the end
  std::vector<prediction::SequenceRoutes> routes_;
  std::vector<uint32_t> row_counts_;                           ///< [experts], zero between uses
  std::vector<float> guess_cells_;                             ///< [layers, experts]
  std::vector<float> sorted_;
  std::vector<prediction::GateGuess> guesses_;
  std::vector<Copied> copied_;
};

}  // namespace moestro::device
