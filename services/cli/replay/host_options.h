#pragma once
// --drive, --host and --host-cache of `moestro replay`.

#include "services/cli/replay/replay_options.h"

namespace moestro::cli {

/// The host memory that a drive fills. nullopt: no drive is given, so host memory has every expert. `expert_bytes`: of
/// one. kInvalidArgument names the flag.
Result<std::optional<HostCase>> read_host(const ReplayOptions& options, const tier::Routes& routes,
                                          uint64_t expert_bytes);

/// Of a replay without a device: refuses what only a device has. kInvalidArgument names the flag.
Status check_no_device_flags(const ReplayOptions& options);

}  // namespace moestro::cli
