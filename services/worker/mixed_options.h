#pragma once
// What --mixed asks for, of a box whose other settings are known.

#include <optional>

#include "common/config/box_config.h"
#include "common/config/device_spec.h"
#include "common/expert_copy.h"
#include "common/status.h"

namespace moestro::worker {

/// nullopt: off. kInvalidArgument or kUnsupported: it is wrong in itself, or does not go with another setting.
Result<std::optional<MixedOptions>> mixed_options(const config::BoxConfig& box, config::DeviceSpec::Kind device);

}  // namespace moestro::worker
