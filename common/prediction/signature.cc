#include "common/prediction/signature.h"

namespace moestro::prediction {
namespace {

constexpr size_t kRowsMax = 2048, kRowsMin = 256;
constexpr size_t kTableBytesMax = 16 << 20;
constexpr float kPriorTokens = 1;  ///< what everybody uses counts as so many tokens
constexpr float kSeenMax = 64;     ///< then older ones count half

uint64_t mixed(uint64_t x) {
  x ^= x >> 33, x *= 0xFF51AFD7ED558CCDULL;
  x ^= x >> 33, x *= 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33);
}

size_t rows_for(const PredictorShape& shape, int32_t reach) {
  size_t rows = kRowsMax;
  const size_t row_bytes = static_cast<size_t>(reach) * static_cast<size_t>(shape.layers) *
                           (static_cast<size_t>(shape.experts) + 2) * sizeof(float);
  while (rows > kRowsMin && rows * row_bytes > kTableBytesMax) rows /= 2;
  return shape.experts <= SignaturePredictor::kExpertsMax ? rows : 0;
}

}  // namespace

SignaturePredictor::SignaturePredictor(const PredictorShape& shape, int32_t depth)
    : RowPredictor(shape),
      name_(depth == 3 ? "signature-3" : "signature"),
      depth_(std::min(depth, shape.layers - 1)),
      rows_(rows_for(shape, kReach)),
      usage_(shape, 4) {
  const size_t all = static_cast<size_t>(kReach) * static_cast<size_t>(shape.layers) * rows_;
  tags_.resize(all);
  seen_.resize(all);
  followed_.resize(all * static_cast<size_t>(shape.experts));
}

void SignaturePredictor::begin_iteration(std::span<const IterationSequence> sequences) {
  RowPredictor::begin_iteration(sequences);
  states_.begin(sequences, [this] { return State{std::vector<uint64_t>(static_cast<size_t>(shape_.layers))}; });
}

bool SignaturePredictor::place(const State& state, int32_t target, int32_t distance, Place& place) const {
  uint64_t signature = 0;
  for (int32_t back = 0; back < depth_; ++back) {
    const uint64_t chosen = state.chosen[static_cast<size_t>(before(target, distance + back))];
    if (chosen == 0) return false;
    signature = mixed(signature * 3 + chosen);
  }
  if (rows_ == 0 || depth_ < 1) return false;
  place.tag = static_cast<uint32_t>(signature >> 32) | 1U;
  place.row =
      (static_cast<size_t>(distance - 1) * static_cast<size_t>(shape_.layers) + static_cast<size_t>(target)) * rows_ +
      signature % rows_;
  return true;
}

void SignaturePredictor::learn(const State& state, int32_t target,
                               std::span<const activation::ActivationCount> counts) {
  Place at;
  for (int32_t distance = 1; distance <= std::min(kReach, shape_.layers - 1); ++distance) {
    if (!place(state, target, distance, at)) continue;
    const std::span<float> followed =
        std::span(followed_).subspan(at.row * static_cast<size_t>(shape_.experts), static_cast<size_t>(shape_.experts));
    float& seen = seen_[at.row];
    if (tags_[at.row] != at.tag) {
      // Who is there stays while it has been seen more often than others have come by.
      seen -= 1;
      if (seen > 0) continue;
      tags_[at.row] = at.tag;
      seen = 0;
      std::fill(followed.begin(), followed.end(), 0.0F);
    } else if (seen >= kSeenMax) {
      seen /= 2;
      for (float& n : followed) n /= 2;
    }
    seen += 1;
    for (const activation::ActivationCount& c : counts)
      if (c.expert.value < followed.size()) followed[c.expert.value] += 1;
  }
}

void SignaturePredictor::routed(int32_t layer, std::span<const SequenceRoutes> routes) {
  for (size_t i = 0; i < routes.size() && i < states_.size(); ++i) {
    State& state = states_[i];
    if (learning_) usage_.add(layer, routes[i].counts, active_[i].tokens);
    uint64_t chosen = 0;
    if (active_[i].tokens == 1) {
      if (learning_) learn(state, layer, routes[i].counts);
      for (const activation::ActivationCount& c : routes[i].counts)
        chosen += mixed(c.expert.value + 1ULL);  // a set: in any order
    }
    state.chosen[static_cast<size_t>(layer)] = chosen;
  }
}

bool SignaturePredictor::row(int32_t layer, int32_t target, std::span<float> out) {
  const int32_t distance = target > layer ? target - layer : target - layer + shape_.layers;
  if (distance > std::min(kReach, shape_.layers - 1)) return false;
  AnyToken any(out);
  bool known = false;
  for (size_t i = 0; i < states_.size(); ++i) {
    Place at;
    const bool here = place(states_[i], target, distance, at) && tags_[at.row] == at.tag;
    known = known || here;
    for (int32_t e = 0; e < shape_.experts; ++e) {
      float p = usage_.probability(target, e);
      if (here)
        p = (followed_[at.row * out.size() + static_cast<size_t>(e)] + kPriorTokens * p) /
            (seen_[at.row] + kPriorTokens);
      any.add(static_cast<size_t>(e), p, tokens_at(active_[i], layer, target));
    }
  }
  any.finish();
  return known;
}

}  // namespace moestro::prediction
