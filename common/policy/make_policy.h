#pragma once
// Policies by name.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/status.h"

namespace moestro::policy {

/// The policies that do not need to know the future, best first.
const std::vector<std::string>& policy_names();

/// What a device cache's policies know in addition: key = layer * experts + expert.
struct ModelShape {
  int32_t layers = 0, experts = 0;
  int32_t slots = 1;  ///< of the cache: auto measures what each policy would do with so many
};
/// The policies of a device cache: auto, which follows the one with the fewest recent misses (measured_policy.h), those
/// above, and those that know layers and requests.
const std::vector<std::string>& device_policy_names();
/// kInvalidArgument for a name that is not in device_policy_names().
Result<std::unique_ptr<CachePolicy>> make_device_policy(std::string_view name, const ModelShape& shape);

/// `entries`: the number of keys, in the cache or not. Half-lives are proportional to it, because it takes about that
/// many uses to see each key once. kInvalidArgument for an unknown name.
Result<std::unique_ptr<CachePolicy>> make_policy(std::string_view name, size_t entries);

}  // namespace moestro::policy
