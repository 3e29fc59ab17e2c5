#include "common/prediction/mixed_predictor.h"

#include <cmath>

#include "common/check.h"
#include "common/prediction/odds.h"

namespace moestro::prediction {
namespace {

constexpr double kTrust = 20;        ///< in the weights that a regression starts with
constexpr double kMemory = 0.9998;   ///< by row learned from: some 5,000 rows back count a third
constexpr size_t kLearnedAtOnce = 32;  ///< experts of a row

size_t token_bucket(int32_t tokens) { return tokens <= 1 ? 0 : tokens <= 4 ? 1 : tokens <= 16 ? 2 : 3; }

}  // namespace

MixedPredictor::MixedPredictor(const PredictorShape& shape, std::string name,
                               std::vector<std::unique_ptr<RowPredictor>> sources,
                               const activation::HistoryView* history)
    : shape_(shape),
      name_(std::move(name)),
      sources_(std::move(sources)),
      history_(history),
      usage_(shape, 16),
      said_(kBuckets * static_cast<size_t>(shape.layers)),
      table_(shape.layers, shape.experts),
      row_(static_cast<size_t>(shape.experts)),
      chosen_(static_cast<size_t>(shape.experts)) {
  MOESTRO_CHECK(sources_.size() <= kSourcesMax, "sources of a mixture");
  const size_t known_sets = size_t{1} << sources_.size();
  regressions_.reserve(kWindows * known_sets);
  for (size_t i = 0; i < kWindows * known_sets; ++i) {
    // To start with: popularity, and the mean of what the sources add to it.
    Logistic::Weights start{};
    const auto known = static_cast<uint32_t>(i % known_sets);
    for (size_t s = 0; s < sources_.size(); ++s)
      if ((known >> s & 1U) != 0) start[s] = 1.0 / std::popcount(known);
    start[sources_.size()] = 1;
    regressions_.emplace_back(features(), start, kTrust);
  }
  for (Said& s : said_) {
    s.features.resize(static_cast<size_t>(shape.experts) * features());
    s.chance.resize(static_cast<size_t>(shape.experts));
  }
}

void MixedPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  active_.assign(sequences.begin(), sequences.end());
  begun_ = false;
  ++iteration_;
  if (history_ != nullptr) usage_.lean_on(history_->answers);
  for (const auto& s : sources_) s->begin_iteration(sequences);
}

int32_t MixedPredictor::gate_lookahead() const {
  int32_t most = 0;
  for (const auto& s : sources_) most = std::max(most, s->gate_lookahead());
  return most;
}

void MixedPredictor::guessed(int32_t layer, std::span<const GateGuess> guesses) {
  for (const auto& s : sources_) s->guessed(layer, guesses);
}

void MixedPredictor::end_iteration() {
  for (const auto& s : sources_) s->end_iteration();
}

void MixedPredictor::end_sequence(uint64_t sequence) {
  for (const auto& s : sources_) s->end_sequence(sequence);
}

void MixedPredictor::set_learning(bool on) {
  learning_ = on;
  for (const auto& s : sources_) s->set_learning(on);
}

void MixedPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  learn(layer, routes);
  if (learning_)
    for (size_t i = 0; i < routes.size() && i < active_.size(); ++i)
      usage_.add(layer, routes[i].counts, active_[i].tokens);
  for (const auto& s : sources_) s->routed(layer, routes);
}

void MixedPredictor::learn(int32_t layer, std::span<const SequenceRoutes> routes) {
  std::fill(chosen_.begin(), chosen_.end(), uint8_t{0});
  for (const SequenceRoutes& r : routes)
    for (const activation::ActivationCount& c : r.counts)
      if (c.expert.value < chosen_.size()) chosen_[c.expert.value] = 1;
  const size_t stride = (chosen_.size() + kLearnedAtOnce - 1) / kLearnedAtOnce;
  ++turn_;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    Said& s = said(bucket, layer);
    if (!std::exchange(s.open, false) || !learning_ || iteration_ > s.iteration + 1) continue;
    Logistic& regression = regressions_[s.regression];
    for (size_t e = turn_ % stride; e < chosen_.size(); e += stride)
      regression.note(std::span(s.features).subspan(e * features(), features()), static_cast<double>(s.chance[e]),
                      chosen_[e] != 0);
    regression.step(kMemory);
  }
}

size_t MixedPredictor::fill_features(int32_t layer, int32_t target, Said& said) {
  const size_t width = features(), popularity = sources_.size();
  int32_t tokens = 0;
  for (const IterationSequence& s : active_) tokens += target > layer ? std::max(s.tokens, 1) : 1;
  for (int32_t e = 0; e < shape_.experts; ++e) {
    float* x = said.features.data() + static_cast<size_t>(e) * width;
    const float unused = 1 - usage_.probability(target, e);
    std::fill_n(x, width, 0.0F);
    x[popularity] = odds(1 - (tokens == 1 ? unused : std::pow(unused, static_cast<float>(tokens))));
    x[popularity + 1] = 1;
  }
  size_t known = 0;
  for (size_t s = 0; s < sources_.size(); ++s) {
    if (!sources_[s]->row(layer, target, row_)) continue;
    known |= size_t{1} << s;
    for (size_t e = 0; e < row_.size(); ++e) {
      float* x = said.features.data() + e * width;
      x[s] = odds(row_[e]) - x[popularity];
    }
  }
  return token_bucket(tokens) * (size_t{1} << sources_.size()) + known;
}

void MixedPredictor::weigh(int32_t layer, int32_t target) {
  const int32_t distance = table_.distance(layer, target);
  const size_t bucket = static_cast<size_t>(std::min(distance, kNear + 1) - 1);
  Said& s = said(bucket, target);
  s.regression = bucket * kTokenBuckets * (size_t{1} << sources_.size()) + fill_features(layer, target, s);
  s.open = true, s.iteration = iteration_;
  const std::span<const double> weights = regressions_[s.regression].weights();
  const std::span<float> out = table_.row(target);
  float w[Logistic::kFeaturesMax];
  for (size_t i = 0; i < weights.size(); ++i) w[i] = static_cast<float>(weights[i]);
  for (size_t e = 0; e < out.size(); ++e) {
    const float* x = s.features.data() + e * weights.size();
    float z = 0;
    for (size_t i = 0; i < weights.size(); ++i) z += w[i] * x[i];
    out[e] = s.chance[e] = chance(std::clamp(z, -kOddsMax, kOddsMax));
  }
}

void MixedPredictor::forecast(int32_t layer, Forecast& out) {
  if (!begun_ || layer < 0) {
    for (int32_t target = 0; target < shape_.layers; ++target) weigh(layer, target);
    begun_ = true;
  } else {
    weigh(layer, layer);
    for (int32_t d = 1; d <= std::min(kNear, shape_.layers - 1); ++d) weigh(layer, (layer + d) % shape_.layers);
  }
  for (int32_t target = 0; target < shape_.layers; ++target) {
    const std::span<const float> row = table_.row(target);
    std::copy(row.begin(), row.end(), out.row(target).begin());
  }
}

}  // namespace moestro::prediction
