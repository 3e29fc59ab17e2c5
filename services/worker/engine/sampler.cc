#include "services/worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "services/worker/engine/philox.h"

namespace moestro::engine {

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

void Sampler::collect(std::span<const float> logits) {
  candidates_.resize(logits.size());
  size_t n = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_[n] = {logits[i], static_cast<TokenId>(i)};
    n += logits[i] != -std::numeric_limits<float>::infinity();
  }
  candidates_.resize(n);
}

void Sampler::order_best(size_t n) {
  n = std::min(n, candidates_.size());
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(n);
  if (n < candidates_.size()) std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  std::sort(candidates_.begin(), end, better);
}

TokenId Sampler::sample(std::span<const float> logits, const Sampling& s, int64_t position) {
  if (s.temperature <= 0 || s.top_k == 1) return argmax(logits);
  collect(logits);
  const size_t kept_max = s.top_k > 0 ? std::min(static_cast<size_t>(s.top_k), candidates_.size()) : candidates_.size();
  order_best(kept_max);
  candidates_.resize(kept_max);

  weights_.resize(kept_max);
  double total = 0;
  const double top = candidates_.front().logit;
  for (size_t i = 0; i < kept_max; ++i)
    total += weights_[i] = std::exp((static_cast<double>(candidates_[i].logit) - top) / static_cast<double>(s.temperature));

  size_t kept = kept_max;
  if (s.top_p < 1) {
    double sum = 0;
    kept = 0;
    while (kept < kept_max && (kept == 0 || sum < static_cast<double>(s.top_p) * total)) sum += weights_[kept++];
  }
  while (kept > 1 && weights_[kept - 1] < static_cast<double>(s.min_p)) --kept;  // the best one's weight is 1

  double sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += weights_[i];
  double left = uniform_at(s.seed, s.choice, static_cast<uint32_t>(position)) * sum;
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weights_[i]) < 0) return candidates_[i].id;
  return candidates_[kept - 1].id;
}

void Sampler::score(std::span<const float> logits, TokenId id, int32_t best, TokenScore& out) {
  const double norm = log_sum_exp(logits);
  const auto logprob = [norm](float logit) { return static_cast<float>(static_cast<double>(logit) - norm); };
  out.logprob = id >= 0 ? logprob(logits[static_cast<size_t>(id)]) : 0;
  out.best.clear();
  if (best <= 0) return;
  collect(logits);
  const size_t n = std::min(static_cast<size_t>(best), logits.size());
  order_best(n);
  for (size_t i = 0; i < n; ++i) out.best.push_back({candidates_[i].id, logprob(candidates_[i].logit)});
}

}  // namespace moestro::engine
