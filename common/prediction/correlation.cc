#include "common/prediction/correlation.h"

#include <cmath>

#include "common/prediction/odds.h"

namespace moestro::prediction {
namespace {

constexpr uint64_t kTableBytesMax = uint64_t{256} << 20;
constexpr float kPriorTokens = 4;  ///< what everybody uses counts as so many tokens on each path
constexpr float kCountsMax = 1U << 16;

size_t to_the(size_t base, int32_t power) {
  size_t result = 1;
  for (int32_t i = 0; i < power; ++i) result *= base;
  return result;
}

}  // namespace

Result<std::unique_ptr<CorrelationPredictor>> CorrelationPredictor::create(const PredictorShape& shape,
                                                                           const CorrelationOptions& options) {
  if (options.path < 1 || options.path > 2 || options.reach < 1 || options.reach > shape.layers)
    return invalid_argument("a correlation table has paths of 1 or 2 layers and reaches 1 to " +
                            std::to_string(shape.layers) + " layers ahead");
  const uint64_t bytes = static_cast<uint64_t>(shape.layers) *
                         to_the(static_cast<size_t>(shape.experts), options.path + 1) *
                         static_cast<uint64_t>(options.reach) * sizeof(float);
  if (bytes > kTableBytesMax)
    return invalid_argument("a correlation table of paths of " + std::to_string(options.path) + " layers takes " +
                            std::to_string(bytes >> 20) + " MiB for this model, more than " +
                            std::to_string(kTableBytesMax >> 20) + "; take shorter paths");
  return std::unique_ptr<CorrelationPredictor>(new CorrelationPredictor(shape, options));
}

CorrelationPredictor::CorrelationPredictor(const PredictorShape& shape, const CorrelationOptions& options)
    : RowPredictor(shape),
      options_(options),
      paths_(to_the(static_cast<size_t>(shape.experts), options.path)),
      usage_(shape, 4),
      per_token_(static_cast<size_t>(shape.experts)) {
  const size_t rows = static_cast<size_t>(options.reach) * static_cast<size_t>(shape.layers) * paths_;
  followed_.resize(rows * static_cast<size_t>(shape.experts));
  walked_.resize(rows);
  rows_.reserve(to_the(static_cast<size_t>(shape.top_k), options.path));
}

void CorrelationPredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  states_.begin(sequences, [this] {
    State state{std::vector<std::vector<uint16_t>>(static_cast<size_t>(shape_.layers))};
    for (auto& chosen : state.chosen) chosen.reserve(static_cast<size_t>(shape_.top_k));
    return state;
  });
}

void CorrelationPredictor::paths_to(State& state, int32_t layer, int32_t distance, std::vector<size_t>& rows) const {
  rows.clear();
  const int32_t target = before(layer, -distance);
  const size_t first =
      (static_cast<size_t>(distance - 1) * static_cast<size_t>(shape_.layers) + static_cast<size_t>(target)) * paths_;
  for (const uint16_t last : state.at(layer)) {
    if (options_.path == 1) {
      rows.push_back(first + last);
      continue;
    }
    for (const uint16_t earlier : state.at(before(layer, 1)))
      rows.push_back(first + static_cast<size_t>(last) * static_cast<size_t>(shape_.experts) + earlier);
  }
}

void CorrelationPredictor::learn(State& state, int32_t layer, std::span<const uint16_t> chosen) {
  for (int32_t distance = 1; distance <= options_.reach; ++distance) {
    paths_to(state, before(layer, distance), distance, rows_);
    for (const size_t row : rows_) {
      if (walked_[row] >= kCountsMax) {
        walked_[row] /= 2;
        for (float& n : table_row(row)) n /= 2;
      }
      walked_[row] += 1;
      for (const uint16_t e : chosen) table_row(row)[e] += 1;
    }
  }
}

void CorrelationPredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < states_.size(); ++i) {
    State& state = states_[i];
    if (learning_) usage_.add(layer, routes[i].counts, active_[i].tokens);
    std::vector<uint16_t>& here = state.at(layer);
    // Of several tokens at once it is not known which of them chose what.
    const bool one = active_[i].tokens == 1;
    std::vector<uint16_t> before_this;
    before_this.swap(here);
    before_this.clear();
    if (one)
      for (const activation::ActivationCount& c : routes[i].counts)
        if (c.expert.value < static_cast<uint32_t>(shape_.experts))
          before_this.push_back(static_cast<uint16_t>(c.expert.value));
    if (one && learning_) learn(state, layer, before_this);
    here.swap(before_this);
  }
}

void CorrelationPredictor::add_odds(std::span<const size_t> rows, int32_t target) {
  // Experts of one layer are chosen together, so what each of them says is not said anew: the sum of their evidence is
  // damped.
  const float damping = 1 / std::sqrt(static_cast<float>(rows.size()));
  for (int32_t e = 0; e < shape_.experts; ++e) {
    const float everyone = usage_.probability(target, e), prior = odds(everyone);
    float evidence = 0;
    for (const size_t row : rows)
      evidence +=
          odds((table_row(row)[static_cast<size_t>(e)] + kPriorTokens * everyone) / (walked_[row] + kPriorTokens)) -
          prior;
    per_token_[static_cast<size_t>(e)] = chance(prior + damping * evidence);
  }
}

bool CorrelationPredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  const int32_t distance = (target > layer ? target - layer : target - layer + shape_.layers) + options_.back;
  if (distance > options_.reach || states_.size() == 0) return false;
  AnyToken any(out);
  bool known = false;
  for (size_t i = 0; i < states_.size(); ++i) {
    paths_to(states_[i], before(target, distance), distance, rows_);
    if (!rows_.empty()) add_odds(rows_, target);
    for (const size_t r : rows_) known = known || walked_[r] > 0;
    for (int32_t e = 0; e < shape_.experts; ++e)
      any.add(static_cast<size_t>(e),
              rows_.empty() ? usage_.probability(target, e) : per_token_[static_cast<size_t>(e)],
              tokens_at(active_[i], layer, target));
  }
  any.finish();
  return known;
}

}  // namespace moestro::prediction
