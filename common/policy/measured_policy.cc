#include "common/policy/measured_policy.h"

#include <algorithm>
#include <utility>

#include "common/policy/key_order.h"

namespace moestro::policy {
namespace {

const uint32_t kGroup = 0;
constexpr double kOlder = 0.75;  ///< of a window's misses, one later

}  // namespace

MeasuredPolicy::MeasuredPolicy(const MeasuredOptions& options, const std::vector<Make>& candidates)
    : options_(options),
      rate_((std::max<size_t>(options.slots, 1) + options.shadow_slots_max - 1) / options.shadow_slots_max),
      shadow_slots_(std::max<size_t>(1, options.slots / rate_)) {
  for (const Make& make : candidates) real_.push_back(make());
  if (candidates.size() < 2) return;
  for (const Make& make : candidates) shadows_.push_back({make(), {}, 0, 0, 0});
}

bool MeasuredPolicy::sampled(uint32_t key) const { return rate_ == 1 || mixed(key) % rate_ == 0; }

void MeasuredPolicy::inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) {
  for (const auto& policy : real_) policy->inserted(key, group, use, predicted);
  if (!predicted) measure(key, use);
}

void MeasuredPolicy::used(uint32_t key, const Use& use) {
  for (const auto& policy : real_) policy->used(key, use);
  measure(key, use);
}

void MeasuredPolicy::removed(uint32_t key) {
  for (const auto& policy : real_) policy->removed(key);
}

void MeasuredPolicy::ruled_out(uint32_t key) {
  for (const auto& policy : real_) policy->ruled_out(key);
}

void MeasuredPolicy::forget(uint32_t key) {
  measure_layer();
  for (const auto& policy : real_) policy->forget(key);
  for (Shadow& shadow : shadows_) {
    shadow.policy->forget(key);
    if (key < shadow.in.size() && shadow.in[key] != 0) shadow.in[key] = 0, --shadow.held;
  }
}

void MeasuredPolicy::at_layer(int32_t layer) {
  measure_layer();
  for (const auto& policy : real_) policy->at_layer(layer);
  for (Shadow& shadow : shadows_) shadow.policy->at_layer(layer);
}

void MeasuredPolicy::sequence_began(int32_t sequences) {
  measure_layer();
  for (const auto& policy : real_) policy->sequence_began(sequences);
  for (Shadow& shadow : shadows_) shadow.policy->sequence_began(sequences);
}

void MeasuredPolicy::measure(uint32_t key, const Use& use) {
  if (!shadows_.empty() && sampled(key)) layer_uses_.push_back({key, use});
}

/// The layer is over. As in the cache, what it uses stays meanwhile, also what it has not come to yet: else a policy
/// would be judged by misses that the cache does not have.
void MeasuredPolicy::measure_layer() {
  ++visit_;
  for (const auto& [key, use] : layer_uses_) {
    if (key >= last_visit_.size()) last_visit_.resize(std::max<size_t>(key + 1, 2 * last_visit_.size()));
    last_visit_[key] = visit_;
  }
  for (const auto& [key, use] : layer_uses_) {
    for (Shadow& shadow : shadows_) pass(shadow, key, use);
    if (!use.scan && ++window_ >= options_.window_uses) choose();
  }
  layer_uses_.clear();
}

void MeasuredPolicy::pass(Shadow& shadow, uint32_t key, const Use& use) {
  if (key >= shadow.in.size()) shadow.in.resize(last_visit_.size());
  if (shadow.in[key] != 0) return shadow.policy->used(key, use);
  if (!use.scan) shadow.misses += 1;
  if (shadow.held >= shadow_slots_) {
    const auto out = shadow.policy->victim({{&kGroup, 1}, use.time}, [&](uint32_t other) -> Verdict {
      return {last_visit_[other] == visit_ ? Verdict::Kind::kSpared : Verdict::Kind::kTake, {}};
    });
    if (!out) return;  // a layer that uses more than there are slots
    shadow.policy->removed(*out);
    shadow.in[*out] = 0, --shadow.held;
  }
  shadow.policy->inserted(key, kGroup, use, false);
  shadow.in[key] = 1, ++shadow.held;
}

void MeasuredPolicy::choose() {
  window_ = 0;
  for (Shadow& shadow : shadows_) shadow.score = kOlder * shadow.score + std::exchange(shadow.misses, 0);
  const auto best = static_cast<size_t>(std::ranges::min_element(shadows_, {}, &Shadow::score) - shadows_.begin());
  if (shadows_[best].score < (1 - options_.better) * shadows_[chosen_].score) chosen_ = best;
}

}  // namespace moestro::policy
