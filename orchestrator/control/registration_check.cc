#include "orchestrator/control/registration_check.h"

namespace moestro::orchestrator {

Status check_registration(const Registration& r, const std::string& model, uint64_t tokenizer,
                          std::optional<activation::EamcShape> experts) {
  if (r.protocol != kWorkerProtocol)
    return unsupported("the worker speaks protocol " + std::to_string(r.protocol) + ", this orchestrator " +
                       std::to_string(kWorkerProtocol) + "; run the same version of both");
  if (r.model != model)
    return invalid_argument("the worker serves model '" + r.model + "', this orchestrator '" + model + "'");
  if (tokenizer != 0 && r.tokenizer != 0 && r.tokenizer != tokenizer)
    return invalid_argument("the worker's pack of '" + r.model +
                            "' has another tokenizer.json than the orchestrator has read; give the store and the "
                            "orchestrator the same pack");
  if (experts && r.experts != *experts)
    return invalid_argument("the worker's pack of '" + r.model +
                            "' has other experts than that of those that are here: it is another model");
  if (r.ranks != 1) return unsupported("replicas of " + std::to_string(r.ranks) + " ranks");
  return Status::ok();
}

}  // namespace moestro::orchestrator
