#include "orchestrator/control/registration_check.h"

namespace moestro::orchestrator {

Status check_registration(const Registration& r, const std::string& model, std::optional<uint64_t> pack) {
  if (r.protocol != kWorkerProtocol)
    return unsupported("the worker speaks protocol " + std::to_string(r.protocol) + ", this orchestrator " + std::to_string(kWorkerProtocol) +
                       "; run the same version of both");
  if (r.model != model) return invalid_argument("the worker serves model '" + r.model + "', this orchestrator '" + model + "'");
  if (pack && r.pack_identity != *pack)
    return invalid_argument("the worker serves another version of the pack of '" + r.model + "' than those that are here; restart them together");
  if (r.ranks != 1) return unsupported("replicas of " + std::to_string(r.ranks) + " ranks");
  return Status::ok();
}

}  // namespace moestro::orchestrator
