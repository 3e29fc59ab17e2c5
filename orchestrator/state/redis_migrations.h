#pragma once
// The keys of a Redis, version by version: moestro:version is the number of steps that were done, plus one.

#include <functional>

#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

/// Sends a command and waits for its answer.
using RedisSay = std::function<Result<RedisReply>(const RedisLink::Words&)>;

/// Does the missing steps; several orchestrators may do so at once. Returns the resulting version, which is above
/// redis_version() if a later Moestro has written the keys.
Result<int64_t> migrate(const RedisSay& say);
/// The version that this program writes.
int64_t redis_version();

}  // namespace moestro::orchestrator
