#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {
namespace {

std::vector<double> scores_of(const float* logits, const RouterSpec& spec) {
  std::vector<double> p(logits, logits + spec.experts);
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 1.0;
  if (spec.scores == RouterSpec::Scores::kSoftmax) {
    for (double& v : p) v = std::exp(v - top);
    sum = std::accumulate(p.begin(), p.end(), 0.0);
  } else {
    for (double& v : p) v = 1.0 / (1.0 + std::exp(-v));
  }
  for (double& v : p) v /= sum;
  return p;
}

/// Indices of `values`, largest first, ties in the order of the indices.
std::vector<size_t> in_falling_order(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  return order;
}

/// Experts of groups that are not kept become minus infinity.
void keep_best_groups(const RouterSpec& spec, std::vector<double>& choice) {
  const auto width = static_cast<std::ptrdiff_t>(spec.experts / spec.groups);
  std::vector<double> values;
  for (auto at = choice.begin(); at != choice.end(); at += width) {
    std::vector<double> group(at, at + width);
    std::sort(group.rbegin(), group.rend());
    values.push_back(
        std::accumulate(group.begin(), group.begin() + std::min<std::ptrdiff_t>(width, spec.group_best), 0.0));
  }
  const std::vector<size_t> order = in_falling_order(values);
  for (auto g = static_cast<size_t>(spec.groups_kept); g < order.size(); ++g)
    std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(order[g]) * width, width,
                -std::numeric_limits<double>::infinity());
}

/// Of the experts that are left, the best and its weight.
std::pair<size_t, double> mix_sparsely(const std::vector<float>& logits, const std::vector<bool>& taken,
                                       double jitter) {
  size_t best = taken[0] ? 1 : 0;
  for (size_t e = 0; e < logits.size(); ++e)
    if (!taken[e] && logits[e] > logits[best]) best = e;
  double sum = 0.0;
  for (size_t e = 0; e < logits.size(); ++e) {
    const double size = std::max<double>(std::fabs(logits[e]), logits[best]);
    const bool far = (static_cast<double>(logits[best]) - logits[e]) / size > 2.0 * jitter;
    if (!taken[e] && !far) sum += std::exp(static_cast<double>(logits[e]) - logits[best]);
  }
  return {best, 1.0 / sum};
}

}  // namespace

void ReferenceOps::router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) {
  for (int64_t t = 0; t < n; ++t, logits += spec.experts) {
    if (spec.scores == RouterSpec::Scores::kSparseMixer) {
      std::vector<bool> taken(static_cast<size_t>(spec.experts));
      for (int64_t k = 0; k < spec.top_k; ++k) {
        const auto [expert, weight] =
            mix_sparsely({logits, logits + spec.experts}, taken, static_cast<double>(spec.jitter));
        taken[expert] = true;
        *ids++ = static_cast<int32_t>(expert);
        *weights++ = static_cast<float>(weight);
      }
      continue;
    }
    const std::vector<double> scores = scores_of(logits, spec);
    std::vector<double> choice = scores;
    if (spec.scores == RouterSpec::Scores::kSigmoid && !spec.bias && spec.groups == 1)
      choice.assign(logits, logits + spec.experts);  // of the same order, also where scores round to 1
    for (size_t e = 0; spec.bias && e < choice.size(); ++e) choice[e] += spec.bias[e];
    if (spec.groups > 1) keep_best_groups(spec, choice);
    std::vector<size_t> order = in_falling_order(choice);
    order.resize(static_cast<size_t>(spec.top_k));
    double chosen = 0.0;
    for (const size_t e : order) chosen += scores[e];
    for (const size_t e : order) {
      *ids++ = static_cast<int32_t>(e);
      *weights++ = static_cast<float>(scores[e] / (spec.normalise ? chosen : 1.0) * spec.scale);
    }
  }
}

}  // namespace moestro::kernels::reference
