#pragma once
// The planner's sizes of a pack's model, as the pack has it.

#include "common/planner/model_sizes.h"
#include "store/pack/manifest.h"

namespace moestro::box {

/// `experts`: one of the pack's precisions. Experts of several formats are counted by their longest, and compute as the
/// first one's gate does. Errors are those of planner::model_sizes.
Result<planner::ModelSizes> pack_sizes(const store::Manifest& manifest, const model::ModelDescription& description,
                                       DType experts, DType kv);

}  // namespace moestro::box
