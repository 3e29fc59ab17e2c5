#include "orchestrator/state/records.h"

#include <array>

namespace moestro::orchestrator {

std::string_view batch_status_name(BatchStatus status) {
  static constexpr std::array<std::string_view, kBatchStatuses> kNames{
      "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"};
  return kNames[static_cast<size_t>(status)];
}

bool is_over(BatchStatus status) {
  return status == BatchStatus::kFailed || status == BatchStatus::kCompleted || status == BatchStatus::kExpired ||
         status == BatchStatus::kCancelled;
}

Status check_size(const ResponseRecord& response, const ResponseLimits& limits) {
  if (response.text.size() <= limits.bytes_max) return Status::ok();
  return exhausted("the response has " + std::to_string(response.text.size()) + " bytes; " +
                   std::to_string(limits.bytes_max) + " are kept of all together");
}

}  // namespace moestro::orchestrator
