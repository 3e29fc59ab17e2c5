#pragma once
// The model of a plan: from a pack, or from a shape alone.

#include <optional>
#include <string>

#include "common/planner/plan_input.h"
#include "services/cli/plan/plan_options.h"
#include "store/pack/manifest.h"

namespace moestro::cli {

struct PlannedModel {
  std::string name;         ///< for people
  std::string config_json;
  model::ModelDescription description;
  planner::ModelSizes sizes;
  DType experts = DType::kBF16;  ///< as they are packed: kMixed too, where `sizes` has the format of a matrix
  std::optional<store::Manifest> manifest;  ///< absent: a shape
};

/// kInvalidArgument, kNotFound, kCorrupt and kUnsupported name the flag or the file.
Result<PlannedModel> read_planned_model(const PlanOptions& options);
/// Of an encoder-decoder model --prompt is the source, and --generate the target.
planner::Workload workload_of(const PlanOptions& options, const PlannedModel& model);

}  // namespace moestro::cli
