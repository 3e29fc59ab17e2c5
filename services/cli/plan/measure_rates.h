#pragma once
// Measures how fast this machine computes a model's parts and reads its pack.

#include <functional>
#include <string>

#include "common/planner/rates.h"
#include "services/cli/plan/plan_model.h"

namespace moestro::cli {

/// `done` of `total` units, and what is measured next.
using MeasureProgress = std::function<void(uint64_t done, uint64_t total, const std::string& what)>;

/// With the engine's kernels, in some seconds: products of 1 to 512 rows with matrices and experts of the model's
/// shape, attention, norms and sampling. Weights are streamed from as much memory as the model has, at most 1 GiB (or
/// twice the largest expert), so that small models stay in the CPU's caches as they do when they run. kExhausted: there
/// is not enough memory for that.
Result<planner::Rates> measure_rates(const PlannedModel& model, int threads, const MeasureProgress& progress);

/// Bytes per second that the drive of the pack reads, past the page cache. For a shape: the drive of this folder, by a
/// temporary file.
Result<double> measure_drive(const PlanOptions& options, const PlannedModel& model);

}  // namespace moestro::cli
