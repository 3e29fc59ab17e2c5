#include "services/worker/mixed_options.h"

#include "common/config/mixed_spec.h"
#include "common/mixed_refusals.h"

namespace moestro::worker {

Result<std::optional<MixedOptions>> mixed_options(const config::BoxConfig& box, config::DeviceSpec::Kind device) {
  auto mixed = config::parse_mixed(box.workers.mixed);
  if (!mixed.is_ok()) return mixed.status().with_context("--mixed (workers.mixed)");
  const std::optional<double> most = box.workers.mixed_max_share;
  if (!mixed->has_value() && most)
    return invalid_argument("--mixed-max-share (workers.mixed_max_share) limits low copies, and --mixed is off; give "
                            "--mixed too, or leave it out");
  if (!mixed->has_value()) return mixed;
  (*mixed)->max_share = most.value_or(1);
  if (box.workers.deterministic) return mixed_excludes_deterministic();
  if (device == config::DeviceSpec::Kind::kCuda) return mixed_on_a_gpu();
  if (box.workers.schedule == "cgo")
    return unsupported("--mixed with --schedule cgo, whose steps are in several micro-batches; leave out --schedule "
                       "cgo and --kv-home host");
  if (device == config::DeviceSpec::Kind::kEmulated && box.workers.kv_home == "host")
    return unsupported("--mixed with --kv-home host, which needs steps in several micro-batches; leave out --kv-home "
                       "host");
  if (box.workers.schedule == "expert-pipeline")
    return unsupported("--mixed with --schedule expert-pipeline, whose steps are in several micro-batches; leave out "
                       "--schedule expert-pipeline");
  return mixed;
}

}  // namespace moestro::worker
