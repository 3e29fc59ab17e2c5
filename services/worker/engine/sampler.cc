#include "services/worker/engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "services/worker/engine/philox.h"

namespace moestro::engine {
namespace {

constexpr size_t kLogitsBlock = 512;  // weights that are summed at once
constexpr float kFactorMax =
    1e30f;  // of a temperature so small that only the best is left: infinity times the best one's 0 would be NaN
constexpr size_t kPartial = 8;  // sums side by side, for one add does not wait for the last then

double sum_of(const float* weights, size_t count) {
  double sums[kPartial] = {};
  size_t i = 0;
  for (; i + kPartial <= count; i += kPartial)
    for (size_t k = 0; k < kPartial; ++k) sums[k] += static_cast<double>(weights[i + k]);
  for (; i < count; ++i) sums[0] += static_cast<double>(weights[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// Weights in (0, 1] by their exponent and the first seven bits of what follows it: class 0 has 1, later ones less, the
// last one all below 2^-32.
constexpr uint32_t kClassBits = 7, kClasses = (32u << kClassBits) + 1;
uint32_t class_of(float weight) {
  const uint32_t of_one = std::bit_cast<uint32_t>(1.0f) >> (23 - kClassBits),
                 of_this = std::bit_cast<uint32_t>(weight) >> (23 - kClassBits);
  return std::min(of_one - std::min(of_this, of_one), kClasses - 1);
}

}  // namespace

bool Sampler::all_finite(std::span<const float> logits) {
  float sum = 0;  // x - x is 0 for finite x, NaN otherwise; no early exit, so that it vectorises
  for (const float x : logits) sum += x - x;
  return sum == 0;
}

TokenId Sampler::argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double Sampler::log_sum_exp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - top));
  return static_cast<double>(top) + std::log(sum);
}

void Sampler::take_best(std::span<const float> logits, size_t n) {
  candidates_.clear();
  n = std::min(n, logits.size());
  // A heap of the n best so far, the worst on top: few of a long row get past it.
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate next{logits[i], static_cast<TokenId>(i)};
    if (candidates_.size() == n) {
      if (n == 0 || !better(next, candidates_.front())) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    }
    candidates_.push_back(next);
    std::push_heap(candidates_.begin(), candidates_.end(), better);
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
}

void Sampler::drop_all_but_best(std::span<const float> logits, size_t n) {
  if (n >= logits.size()) return;
  take_best(logits, n);
  const Candidate worst = candidates_.back();
  for (size_t i = 0; i < logits.size(); ++i)
    if (better(worst, {logits[i], static_cast<TokenId>(i)})) weights_[i] = 0;
}

void Sampler::drop_tail(std::span<const float> logits, double top_p) {
  if (top_p >= 1) return;
  sums_.assign(kClasses, 0);
  for (const float weight : weights_)
    if (weight > 0) sums_[class_of(weight)] += static_cast<double>(weight);
  double left = 0;
  for (const double sum : sums_) left += sum;
  left *= top_p;
  uint32_t last = 0;  // the class in which it is reached
  while (last + 1 < kClasses && sums_[last] < left) left -= sums_[last++];

  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] <= 0) continue;
    const uint32_t at = class_of(weights_[i]);
    if (at == last) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    if (at > last) weights_[i] = 0;
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  bool best = last == 0;  // it stays, however little is asked for
  for (const Candidate& c : candidates_) {
    float& weight = weights_[static_cast<size_t>(c.id)];
    if (left <= 0 && !best) weight = 0;
    left -= static_cast<double>(weight);
    best = false;
  }
}

void Sampler::drop_unlikely(float min_p) {
  if (min_p <= 0) return;
  for (float& weight : weights_)
    if (weight < min_p) weight = 0;
}

TokenId Sampler::draw(double share) {
  sums_.clear();
  for (size_t first = 0; first < weights_.size(); first += kLogitsBlock)
    sums_.push_back(sum_of(weights_.data() + first, std::min(kLogitsBlock, weights_.size() - first)));
  double left = 0;
  for (const double sum : sums_) left += sum;
  left *= share;
  size_t block = 0;
  while (block + 1 < sums_.size() && left >= sums_[block]) left -= sums_[block++];
  while (sums_[block] <= 0) --block;  // what is left at the end is rounding: the last that can be drawn has it
  TokenId drawn = 0;
  const size_t end = std::min((block + 1) * kLogitsBlock, weights_.size());
  for (size_t i = block * kLogitsBlock; i < end; ++i) {
    if (weights_[i] <= 0) continue;
    drawn = static_cast<TokenId>(i);
    if ((left -= static_cast<double>(weights_[i])) < 0) break;
  }
  return drawn;
}

TokenId Sampler::sample(std::span<const float> logits, const Sampling& s, int64_t position) {
  const TokenId best = argmax(logits);
  if (s.temperature <= 0 || s.top_k == 1) return best;
  weights_.resize(logits.size());
  ops_.exponentials(logits.data(), static_cast<int64_t>(logits.size()), logits[static_cast<size_t>(best)],
                    std::min(1 / s.temperature, kFactorMax), weights_.data());
  if (s.top_k > 0) drop_all_but_best(logits, static_cast<size_t>(s.top_k));
  drop_tail(logits, static_cast<double>(s.top_p));
  drop_unlikely(s.min_p);
  return draw(uniform_at(s.seed, s.choice, static_cast<uint32_t>(position)));
}

void Sampler::score(std::span<const float> logits, TokenId id, int32_t best, TokenScore& out) {
  const double norm = log_sum_exp(logits);
  const auto logprob = [norm](float logit) { return static_cast<float>(static_cast<double>(logit) - norm); };
  out.logprob = id >= 0 ? logprob(logits[static_cast<size_t>(id)]) : 0;
  out.best.clear();
  if (best <= 0) return;
  take_best(logits, static_cast<size_t>(best));
  for (const Candidate& c : candidates_) out.best.push_back({c.id, logprob(c.logit)});
}

}  // namespace moestro::engine
