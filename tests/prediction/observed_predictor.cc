#include "tests/prediction/observed_predictor.h"

#include <algorithm>
#include <cmath>

namespace moestro::prediction {

double PredictionScore::calibration_error() const {
  double distance = 0, experts = 0;
  for (const Bin& b : bins) {
    distance += std::abs(b.probability - static_cast<double>(b.used));
    experts += static_cast<double>(b.experts);
  }
  return experts == 0 ? 0 : distance / experts;
}

void PredictionScore::add(const PredictionScore& other) {
  predicted += other.predicted, used += other.used, predicted_used += other.predicted_used,
      lead_layers += other.lead_layers;
  log_loss_sum += other.log_loss_sum;
  for (size_t b = 0; b < bins.size(); ++b) {
    bins[b].experts += other.bins[b].experts, bins[b].used += other.bins[b].used;
    bins[b].probability += other.bins[b].probability;
  }
}

double PredictionScore::log_loss() const {
  uint64_t experts = 0;
  for (const Bin& b : bins) experts += b.experts;
  return experts == 0 ? 0 : log_loss_sum / static_cast<double>(experts);
}

ObservedPredictor::ObservedPredictor(const PredictorShape& shape, std::unique_ptr<Predictor> predictor, float threshold)
    : shape_(shape),
      predictor_(std::move(predictor)),
      threshold_(threshold),
      scores_(static_cast<size_t>(shape.layers)),
      last_(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.experts)),
      since_(last_.size()),
      foreseen_(static_cast<size_t>(shape.layers)),
      chosen_(static_cast<size_t>(shape.experts)) {}

void ObservedPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  decoding_ = !sequences.empty() &&
              std::all_of(sequences.begin(), sequences.end(), [](const IterationSequence& s) { return s.decode; });
  predictor_->begin_iteration(sequences);
}

void ObservedPredictor::forecast(int32_t layer, Forecast& out) {
  predictor_->forecast(layer, out);
  for (int32_t target = 0; target < shape_.layers; ++target) {
    const std::span<const float> row = out.row(target);
    const size_t first = static_cast<size_t>(target) * row.size();
    for (size_t e = 0; e < row.size(); ++e) {
      last_[first + e] = row[e];
      uint64_t& since = since_[first + e];
      if (row[e] < threshold_) since = 0;
      else if (since == 0) since = clock_;
    }
    foreseen_[static_cast<size_t>(target)] = 1;
  }
}

void ObservedPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  const auto row = static_cast<size_t>(layer), experts = chosen_.size();
  if (decoding_ && foreseen_[row] != 0) {
    std::fill(chosen_.begin(), chosen_.end(), uint8_t{0});
    for (const SequenceRoutes& r : routes)
      for (const activation::ActivationCount& c : r.counts)
        if (c.expert.value < experts) chosen_[c.expert.value] = 1;
    PredictionScore& score = scores_[row];
    for (size_t e = 0; e < experts; ++e) {
      const bool used = chosen_[e] != 0;
      const float p = last_[row * experts + e];
      const uint64_t since = since_[row * experts + e];
      PredictionScore::Bin& bin = score.bins[static_cast<size_t>(std::clamp(p * 10, 0.0F, 9.0F))];
      ++bin.experts, bin.used += used ? 1 : 0, bin.probability += static_cast<double>(p);
      score.used += used ? 1 : 0;
      score.log_loss_sum -= std::log(std::clamp(static_cast<double>(used ? p : 1 - p), 1e-4, 1.0));
      if (since == 0) continue;
      ++score.predicted;
      if (used) ++score.predicted_used, score.lead_layers += clock_ - since + 1;
    }
  }
  // What was said of this pass says nothing of the next one.
  std::fill_n(since_.begin() + static_cast<std::ptrdiff_t>(row * experts), experts, uint64_t{0});
  foreseen_[row] = 0;
  ++clock_;
  predictor_->routed(layer, routes);
}

PredictionScore ObservedPredictor::total() const {
  PredictionScore sum;
  for (const PredictionScore& s : scores_) sum.add(s);
  return sum;
}

void ObservedPredictor::reset_scores() { scores_.assign(scores_.size(), PredictionScore{}); }

}  // namespace moestro::prediction
