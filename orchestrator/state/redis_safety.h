#pragma once
// Whether a Redis keeps what it has acknowledged. What it says of itself decides; nothing is changed there.

#include <functional>

#include "orchestrator/state/redis_link.h"

namespace moestro::orchestrator {

/// `say` sends one command. kUnavailable: why batches cannot be kept there, and what to set. Also marks an empty Redis as ours, with the version of
/// what we keep there.
Status check_redis_safe(const RedisPlace& place, const std::function<Result<RedisReply>(const RedisLink::Words&)>& say);

}  // namespace moestro::orchestrator
