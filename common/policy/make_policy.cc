#include "common/policy/make_policy.h"

#include <algorithm>

#include "common/policy/frequency_policy.h"
#include "common/policy/lru_policy.h"
#include "common/policy/random_policy.h"

namespace moestro::policy {
namespace {
// On routing traces 1 to 8 times the entries differ by a point or two, shorter and longer ones lose more.
constexpr double kHalfLivesPerEntry = 3;
constexpr double kPeriodsPerEntry = 16;
}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names{"lfru", "lfu", "lru", "random"};
  return names;
}

Result<std::unique_ptr<CachePolicy>> make_policy(std::string_view name, size_t entries) {
  const double count = static_cast<double>(std::max<size_t>(entries, 1));
  std::unique_ptr<CachePolicy> made;
  if (name == "lfru") made = std::make_unique<FrequencyPolicy>(LfruOptions{kHalfLivesPerEntry * count});
  else if (name == "lfu") made = std::make_unique<FrequencyPolicy>(LfuOptions{kPeriodsPerEntry * count});
  else if (name == "lru") made = std::make_unique<LruPolicy>();
  else if (name == "random") made = std::make_unique<RandomPolicy>();
  else return invalid_argument("no cache policy is called '" + std::string(name) + "': there are lfru, lfu, lru and random");
  return made;
}

}  // namespace moestro::policy
