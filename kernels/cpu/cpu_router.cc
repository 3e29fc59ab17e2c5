#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

namespace {

/// The k largest values met so far, largest first; of equal ones the first met. Strict comparisons: the first k that
/// are offered enter whatever they are, so k distinct ids come out even of NaN.
class Best {
 public:
  /// Room for k each; `ids` may be null.
  Best(int64_t k, int32_t* ids, float* values) : k_(k), ids_(ids), values_(values) {}
  void offer(int32_t id, float value) {
    if (held_ == k_ && !(value > values_[k_ - 1])) return;
    int64_t at = held_ < k_ ? held_++ : k_ - 1;
    for (; at > 0 && value > values_[at - 1]; --at) {
      values_[at] = values_[at - 1];
      if (ids_) ids_[at] = ids_[at - 1];
    }
    values_[at] = value;
    if (ids_) ids_[at] = id;
  }

 private:
  int64_t k_, held_ = 0;
  int32_t* ids_;
  float* values_;
};

/// Of each group, the sum of its best experts' values.
void rate_groups(const RouterSpec& spec, const float* choice, float* best, float* rates) {
  const int64_t width = spec.experts / spec.groups, count = std::min(width, spec.group_best);
  for (int64_t g = 0; g < spec.groups; ++g) {
    Best group(count, nullptr, best);
    for (int64_t e = g * width; e < (g + 1) * width; ++e) group.offer(static_cast<int32_t>(e), choice[e]);
    rates[g] = 0.0f;
    for (int64_t i = 0; i < count; ++i) rates[g] += best[i];
  }
}

/// A rate of NaN is neither better nor worse than another: more groups may then be kept, never fewer.
bool group_is_kept(const RouterSpec& spec, const float* rates, int64_t g) {
  int64_t better = 0;
  for (int64_t other = 0; other < spec.groups; ++other)
    better += rates[other] > rates[g] || (rates[other] == rates[g] && other < g);
  return better < spec.groups_kept;
}

void check_spec(const RouterSpec& s) {
  MOESTRO_CHECK(s.top_k >= 1 && s.top_k <= s.experts, "top-k within the number of experts");
  MOESTRO_CHECK(s.scores != RouterSpec::Scores::kSparseMixer || (s.top_k == 2 && s.groups == 1 && !s.bias),
                "SparseMixer chooses two, by logits alone");
  MOESTRO_CHECK(s.groups >= 1 && s.experts % s.groups == 0 && s.group_best >= 1, "equal groups of experts");
  MOESTRO_CHECK(s.groups_kept >= 1 && s.groups_kept <= s.groups && s.groups_kept * (s.experts / s.groups) >= s.top_k,
                "the kept groups hold top-k experts");
}

/// Scores, values for the choice, rates of groups, and the best of one group.
int64_t scratch_floats(const RouterSpec& s) {
  return 2 * s.experts + s.groups + s.group_best;
}

}  // namespace

/// The best expert but `taken`, and its weight: its share among those that are near it. `near`: [experts].
float CpuOps::mix_sparsely(const float* logits, const RouterSpec& spec, int32_t taken, float* near, int32_t* id) const {
  int32_t best = taken == 0 ? 1 : 0;
  for (int32_t e = 0; e < static_cast<int32_t>(spec.experts); ++e)
    if (e != taken && logits[e] > logits[best]) best = e;
  const float top = logits[best];
  for (int32_t e = 0; e < static_cast<int32_t>(spec.experts); ++e) {
    const float size = std::max(std::fabs(logits[e]), top);
    near[e] = e == taken || (top - logits[e]) / size > 2.0f * spec.jitter ? -INFINITY : logits[e];
  }
  const float total = kernels_.softmax(near, spec.experts, 1.0f);
  *id = best;
  return std::isnan(total) ? total : near[best] / total;
}

/// One token. `scratch`: scratch_floats().
void CpuOps::route(const float* logits, const RouterSpec& spec, float* scratch, int32_t* ids, float* weights) const {
  if (spec.scores == RouterSpec::Scores::kSparseMixer) {
    weights[0] = mix_sparsely(logits, spec, -1, scratch, ids);
    weights[1] = mix_sparsely(logits, spec, ids[0], scratch, ids + 1);
    return;
  }
  float* scores = scratch;
  float* choice = scores;
  std::copy_n(logits, spec.experts, scores);
  const bool softmax = spec.scores == RouterSpec::Scores::kSoftmax;
  // A sigmoid rounds large logits to 1, and its choice would be the first of them.
  if (!softmax && !spec.bias && spec.groups == 1) {
    choice = scratch + spec.experts;
    std::copy_n(logits, spec.experts, choice);
  }
  const float total = softmax ? kernels_.softmax(scores, spec.experts, 1.0f) : kernels_.sigmoid(scores, spec.experts);
  const float unit = softmax ? total : 1.0f;  // what a score is divided by
  if (spec.bias) {
    choice = scratch + spec.experts;
    for (int64_t e = 0; e < spec.experts; ++e) choice[e] = scores[e] / unit + spec.bias[e];
  }
  float* rates = scratch + 2 * spec.experts;
  if (spec.groups > 1) rate_groups(spec, choice, rates + spec.groups, rates);
  Best best(spec.top_k, ids, weights);
  const int64_t width = spec.experts / spec.groups;
  for (int64_t g = 0; g < spec.groups; ++g) {
    if (spec.groups > 1 && !group_is_kept(spec, rates, g)) continue;
    for (int64_t e = g * width; e < (g + 1) * width; ++e) best.offer(static_cast<int32_t>(e), choice[e]);
  }
  float divisor = unit;
  for (int64_t i = 0; i < spec.top_k; ++i) weights[i] = scores[ids[i]];
  if (spec.normalise) {
    divisor = 0.0f;
    for (int64_t i = 0; i < spec.top_k; ++i) divisor += weights[i];
  }
  if (std::isnan(total)) divisor = total;
  for (int64_t i = 0; i < spec.top_k; ++i) weights[i] = weights[i] / divisor * spec.scale;
}

void CpuOps::router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) {
  check_spec(spec);
  for (ThreadScratch& s : thread_scratch_) s.scores.at_least(scratch_floats(spec));
  over_ranges(n, 1, n * spec.experts * 8, [&](int64_t first, int64_t end, int thread) {
    float* p = scratch(thread).scores.at_least(scratch_floats(spec));
    for (int64_t t = first; t < end; ++t)
      route(logits + t * spec.experts, spec, p, ids + t * spec.top_k, weights + t * spec.top_k);
  });
}

}  // namespace moestro::kernels::cpu
