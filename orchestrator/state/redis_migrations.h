#pragma once
// The keys of a Redis, version by version: moestro:version is how many of the steps were done, and one.

#include <functional>

#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

/// Says a command and waits for its answer.
using RedisSay = std::function<Result<RedisReply>(const RedisLink::Words&)>;

/// Does the steps that these keys lack; several orchestrators may do so at once. Returns the version they have then,
/// which is above redis_version() if a later Moestro has written them.
Result<int64_t> migrate(const RedisSay& say);
/// The version that this program writes.
int64_t redis_version();

}  // namespace moestro::orchestrator
