#include "services/worker/mixed_options.h"

#include "common/config/mixed_spec.h"

namespace moestro::worker {

Result<std::optional<MixedOptions>> mixed_options(const config::BoxConfig& box, config::DeviceSpec::Kind device) {
  auto mixed = config::parse_mixed(box.workers.mixed);
  if (!mixed.is_ok()) return mixed.status().with_context("--mixed (workers.mixed)");
  if (!mixed->has_value()) return mixed;
  if (box.workers.deterministic)
    return invalid_argument(
        "--mixed and --deterministic exclude each other: which copy of an expert is there depends on other requests "
        "and on time");
  if (device == config::DeviceSpec::Kind::kCuda)
    return unsupported("--mixed on a GPU: only the CPU and the emulated device have it");
  return mixed;
}

}  // namespace moestro::worker
