#pragma once
// Policies by name.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/status.h"

namespace moestro::policy {

/// The policies that need not know the future, best first.
const std::vector<std::string>& policy_names();

/// What a device cache's policies know besides: key = layer * experts + expert.
struct ModelShape {
  int32_t layers = 0, experts = 0;
  int32_t slots = 1;  ///< of the cache: auto measures what each policy would do with so many
};
/// The policies of a device cache: auto, which takes the one that has lately missed least (measured_policy.h), the
/// above, and those that know of layers and requests.
const std::vector<std::string>& device_policy_names();
/// kInvalidArgument for a name that is none of device_policy_names().
Result<std::unique_ptr<CachePolicy>> make_device_policy(std::string_view name, const ModelShape& shape);

/// `entries`: how many keys there are, in the cache or not; lifetimes of frequencies are in proportion to it, because
/// that many uses are about what it takes to see each of them once. kInvalidArgument for a name that is none of them.
Result<std::unique_ptr<CachePolicy>> make_policy(std::string_view name, size_t entries);

}  // namespace moestro::policy
