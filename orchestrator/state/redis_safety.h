#pragma once
// Whether a Redis keeps what it has acknowledged. What it says of itself decides; its settings are left as they are.

#include "orchestrator/state/redis_migrations.h"

namespace moestro::orchestrator {

/// kUnavailable: why batches cannot be kept there, and what to set. Also marks an empty Redis as ours, and brings keys
/// of an earlier version up to this one's.
Status check_redis_safe(const RedisPlace& place, const RedisSay& say);

}  // namespace moestro::orchestrator
