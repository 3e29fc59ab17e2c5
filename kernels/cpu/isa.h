#pragma once
// Which kernels the machine can run.

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace moestro::kernels::cpu {

/// The kernels of `isa`, which the machine must have: its base, and the parts for its further instructions.
const KernelTable& kernel_table(Isa isa);
/// `table` with tiles for many tokens.
KernelTable with(KernelTable table, const TileProducts& part);

/// Physical cores that this process may run on, at least 1.
int physical_cores();

}  // namespace moestro::kernels::cpu
