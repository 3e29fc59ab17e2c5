#pragma once
// Which kernels the machine can run.

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace moestro::kernels::cpu {

/// The kernels of `isa`, which is at most best_isa().
const KernelTable& kernel_table(Isa isa);

/// Physical cores that this process may run on, at least 1.
int physical_cores();

}  // namespace moestro::kernels::cpu
