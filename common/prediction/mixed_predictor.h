#pragma once
// Several predictors as one. A logistic regression weighs their odds. It learns from what the routers chose, so the
// result is calibrated: of the experts with probability p, the share p is used. There are separate weights for each
// distance, number of tokens, and set of sources that know anything.

#include "common/activation/eamc_view.h"
#include "common/prediction/logistic.h"
#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"

namespace moestro::prediction {

class MixedPredictor final : public Predictor {
 public:
  static constexpr size_t kSourcesMax = 8;
  /// At most kSourcesMax sources.
  /// `history` may be null; see PredictorOptions.
  MixedPredictor(const PredictorShape& shape, std::string name, std::vector<std::unique_ptr<RowPredictor>> sources,
                 const activation::HistoryView* history);

  std::string_view name() const override { return name_; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  int32_t gate_lookahead() const override;
  void guessed(int32_t layer, std::span<const GateGuess> guesses) override;
  /// Layers up to kNear ahead, and `layer` itself, are computed again; the others keep what was known before the first
  /// layer.
  void forecast(int32_t layer, Forecast& out) override;
  void end_iteration() override;
  void end_sequence(uint64_t sequence) override;
  void set_learning(bool on) override;

 private:
  static constexpr int32_t kNear = 4;
  static constexpr size_t kBuckets = static_cast<size_t>(kNear) + 1;  ///< of distances: 1 to kNear, and beyond
  static constexpr size_t kTokenBuckets = 4;
  static constexpr size_t kWindows = kBuckets * kTokenBuckets;

  /// What the sources said of one target at one distance, kept until its router has run.
  struct Said {
    bool open = false;
    uint64_t iteration = 0;  ///< in which it was said; it says nothing about another pass
    size_t regression = 0;
    std::vector<float> features;  ///< [expert][feature]
    std::vector<float> chance;    ///< [expert]
  };

  size_t features() const { return sources_.size() + 2; }  ///< the sources', popularity, 1
  Said& said(size_t bucket, int32_t target) {
    return said_[bucket * static_cast<size_t>(shape_.layers) + static_cast<size_t>(target)];
  }
  void weigh(int32_t layer, int32_t target);
  size_t fill_features(int32_t layer, int32_t target, Said& said);
  void learn(int32_t layer, std::span<const SequenceRoutes> routes);

  const PredictorShape shape_;
  const std::string name_;
  const std::vector<std::unique_ptr<RowPredictor>> sources_;
  const activation::HistoryView* const history_;
  bool learning_ = true;
  UsageTable usage_;
  std::vector<Logistic> regressions_;  ///< [bucket][tokens][which sources know]
  std::vector<Said> said_;             ///< [bucket][layer]
  Forecast table_;
  uint64_t iteration_ = 0;
  bool begun_ = false;  ///< the table has been made in this iteration
  std::vector<IterationSequence> active_;
  std::vector<float> row_;         ///< scratch
  std::vector<uint8_t> chosen_;    ///< scratch
  uint32_t turn_ = 0;              ///< if there are many experts, only a part is learned from at a time
};

}  // namespace moestro::prediction
