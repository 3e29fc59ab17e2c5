#pragma once
// Wraps a predictor and measures what its forecasts were worth: precision, recall, lead time, calibration.

#include <array>

#include "common/prediction/predictor.h"

namespace moestro::prediction {

/// An expert counts as predicted if its probability was at least `threshold` in the last forecast before its router
/// ran.
struct PredictionScore {
  uint64_t predicted = 0, used = 0, predicted_used = 0;
  uint64_t lead_layers = 0;  ///< over those predicted and used: layers from the first forecast since which it was
                             ///< predicted without a break
  struct Bin {
    uint64_t experts = 0, used = 0;
    double probability = 0;  ///< sum
  };
  double log_loss_sum = 0;
  std::array<Bin, 10> bins{};  ///< by probability in the last forecast: [0, 0.1), [0.1, 0.2), ...

  void add(const PredictionScore& other);
  double precision() const {
    return predicted == 0 ? 0 : static_cast<double>(predicted_used) / static_cast<double>(predicted);
  }
  double recall() const { return used == 0 ? 0 : static_cast<double>(predicted_used) / static_cast<double>(used); }
  double mean_lead_layers() const {
    return predicted_used == 0 ? 0 : static_cast<double>(lead_layers) / static_cast<double>(predicted_used);
  }
  /// The mean difference between predicted probability and observed share, weighed by the number of predictions; 0:
  /// calibrated.
  double calibration_error() const;
  /// Log loss of the probabilities, in nats per expert. It measures calibration and sharpness together; lower is
  /// better.
  double log_loss() const;
};

class ObservedPredictor final : public Predictor {
 public:
  ObservedPredictor(const PredictorShape& shape, std::unique_ptr<Predictor> predictor, float threshold = 0.5F);

  std::string_view name() const override { return predictor_->name(); }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  int32_t gate_lookahead() const override { return predictor_->gate_lookahead(); }
  void guessed(int32_t layer, std::span<const GateGuess> guesses) override { predictor_->guessed(layer, guesses); }
  void forecast(int32_t layer, Forecast& out) override;
  void end_iteration() override { predictor_->end_iteration(); }
  void end_sequence(uint64_t sequence) override { predictor_->end_sequence(sequence); }
  void set_learning(bool on) override { predictor_->set_learning(on); }

  /// Scores by layer, and their sum. Only decoding iterations count, because a prompt uses whole layers.
  const PredictionScore& score(int32_t layer) const { return scores_[static_cast<size_t>(layer)]; }
  PredictionScore total() const;
  void reset_scores();

 private:
  const PredictorShape shape_;
  const std::unique_ptr<Predictor> predictor_;
  const float threshold_;
  std::vector<PredictionScore> scores_;
  std::vector<float> last_;       ///< [layer][expert]: the last forecast
  std::vector<uint64_t> since_;   ///< [layer][expert]: the clock at which it became predicted; 0: it is not
  std::vector<uint8_t> foreseen_; ///< [layer]: there is a forecast
  std::vector<uint8_t> chosen_;   ///< scratch
  uint64_t clock_ = 1;            ///< layers routed so far, from 1
  bool decoding_ = false;
};

}  // namespace moestro::prediction
