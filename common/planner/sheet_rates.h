#pragma once
// Rates that nobody has measured: of a data sheet's peaks, or typical ones.

#include "common/planner/model_sizes.h"
#include "common/planner/placement.h"
#include "common/planner/rates.h"

namespace moestro::planner {

/// Rooflines of kernels that stream `bytes_per_s` of weights and compute `operations_per_s`. No link and no drive.
Rates roofline_rates(const ModelSizes& sizes, double bytes_per_s, double operations_per_s);

/// Of a machine that is not known, for what has to be decided before anything has been measured: a GPU of the middle,
/// or a CPU with so many threads. What brings experts is the slowest that is usual, PCIe 3.0 and a SATA drive: buffers
/// that turn out too large cost only what was counted, and the scheduler goes by measured steps. An emulated device's
/// link is its own, so none is set.
Rates typical_rates(const ModelSizes& sizes, Memories::Device device, int threads);

}  // namespace moestro::planner
