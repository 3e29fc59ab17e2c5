#pragma once

#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {

/// kAmxProducts with tiles that are arrays.
extern const TileProducts kEmulatedTileProducts;
/// Products of two tiles so far.
int64_t emulated_tile_dots();

}  // namespace moestro::kernels::cpu
