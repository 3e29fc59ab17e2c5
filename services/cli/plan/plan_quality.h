#pragma once
// Whether what is planned keeps its quality, by what was measured of the pack.

#include <optional>

#include "services/cli/plan/mixed_choice.h"
#include "services/cli/plan/plan_model.h"

namespace moestro::cli {

struct PlannedQuality {
  std::optional<double> experts_loss;  ///< of experts in the planned precision; nullopt: not measured
  std::string experts_against;         ///< the precision that experts_loss is against
  std::optional<MixedChoice> mixed;    ///< nullopt: --mixed off
};

/// kInvalidArgument, kUnsupported and kCorrupt name the flag or the file: among others, a precision or a setting that
/// was measured to lose more than --max-loss, and a schedule that --mixed does not run with.
Result<PlannedQuality> plan_quality(const PlanOptions& options, const PlannedModel& model);

}  // namespace moestro::cli
