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

/// `entries`: how many keys there are, in the cache or not; lifetimes of frequencies are in proportion to it, because that many uses
/// are about what it takes to see each of them once. kInvalidArgument for a name that is none of them.
Result<std::unique_ptr<CachePolicy>> make_policy(std::string_view name, size_t entries);

}  // namespace moestro::policy
