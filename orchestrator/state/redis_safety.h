#pragma once
// Checks whether a Redis keeps what it has acknowledged, by its own settings, which are not changed; and whether its
// clock and this machine's agree.

#include "orchestrator/state/redis_migrations.h"

namespace moestro::orchestrator {

/// kUnavailable says why batches cannot be kept there, and what to set. Also marks an empty Redis as Moestro's, and
/// converts keys of an earlier version.
Status check_redis_safe(const RedisPlace& place, const RedisSay& say);

}  // namespace moestro::orchestrator
