#include "common/policy/make_policy.h"

#include <algorithm>

#include "common/policy/activation_policy.h"
#include "common/policy/frequency_policy.h"
#include "common/policy/interval_policy.h"
#include "common/policy/lru_policy.h"
#include "common/policy/measured_policy.h"
#include "common/policy/random_policy.h"
#include "common/policy/weighted_policy.h"

namespace moestro::policy {
namespace {
// Uses that an entry's share comes to, over which a use loses half of its weight. On routing recorded from two models 8
// is within 0.3 points of the best length at 10, 25 and 50 % of the entries in the cache, on routing drawn from
// recorded popularity that changes with the subject within 2; 1 loses 2 to 6 points of hit rate, 64 up to 2 where one
// text is read on and on.
constexpr double kHalfLivesPerEntry = 8;
constexpr double kPeriodsPerEntry = 16;

/// What auto chooses from: weights of the four-part policy that calibrations come to, and those that have no weights.
constexpr WeightedOptions kWeights[] = {
    {1, 1, 0.25, 0.5, 0, 0.25}, {1, 1, 0.5, 0.25, 0, 0.25}, {1, 1, 0.25, 0.25, 0, 0.5}, {1, 1, 0, 0.75, 0, 0.25}};
constexpr const char* kPlain[] = {"interval", "lfru", "activation", "lru"};

std::unique_ptr<CachePolicy> make_measured(const ModelShape& shape) {
  std::vector<MeasuredPolicy::Make> candidates;
  const bool all_fit = int64_t{shape.slots} >= int64_t{shape.layers} * shape.experts;  // nobody ever goes
  if (!all_fit)
    for (WeightedOptions weights : kWeights) {
      weights.layers = shape.layers, weights.experts = shape.experts;
      candidates.push_back([weights] { return std::make_unique<WeightedPolicy>(weights); });
    }
  for (const char* name : kPlain) {
    if (all_fit && !candidates.empty()) break;
    candidates.push_back([name, shape] { return std::move(*make_device_policy(name, shape)); });
  }
  return std::make_unique<MeasuredPolicy>(MeasuredOptions{static_cast<size_t>(std::max(shape.slots, 1))}, candidates);
}
}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names{"interval", "lfru", "lfu", "lru", "random"};
  return names;
}

Result<std::unique_ptr<CachePolicy>> make_policy(std::string_view name, size_t entries) {
  const double count = static_cast<double>(std::max<size_t>(entries, 1));
  std::unique_ptr<CachePolicy> made;
  if (name == "interval") made = std::make_unique<IntervalPolicy>(entries);
  else if (name == "lfru") made = std::make_unique<FrequencyPolicy>(LfruOptions{kHalfLivesPerEntry * count});
  else if (name == "lfu") made = std::make_unique<FrequencyPolicy>(LfuOptions{kPeriodsPerEntry * count});
  else if (name == "lru") made = std::make_unique<LruPolicy>();
  else if (name == "random") made = std::make_unique<RandomPolicy>();
  else
    return invalid_argument("no cache policy is called '" + std::string(name) +
                            "': there are interval, lfru, lfu, lru and random");
  return made;
}

const std::vector<std::string>& device_policy_names() {
  static const std::vector<std::string> names{"auto",       "interval", "lfru",  "lfu", "lru",
                                              "activation", "weighted", "random"};
  return names;
}

Result<std::unique_ptr<CachePolicy>> make_device_policy(std::string_view name, const ModelShape& shape) {
  std::unique_ptr<CachePolicy> made;
  if (name == "auto") made = make_measured(shape);
  else if (name == "activation")
    made = std::make_unique<ActivationPolicy>(ActivationOptions{shape.layers, shape.experts});
  else if (name == "weighted") made = std::make_unique<WeightedPolicy>(WeightedOptions{shape.layers, shape.experts});
  if (made) return made;
  const auto& names = policy_names();
  if (std::ranges::find(names, name) != names.end())
    return make_policy(name, static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.experts));
  return invalid_argument("no device cache policy is called '" + std::string(name) +
                          "': there are auto, interval, lfru, lfu, lru, activation, weighted and random");
}

}  // namespace moestro::policy
