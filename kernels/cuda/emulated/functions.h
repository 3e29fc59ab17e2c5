#pragma once

#include "kernels/cuda/plugin_abi.h"

namespace moestro::kernels::cuda::emulated {

/// What the plugin hands out, made of the same kernels run by the emulator. Lives for ever; one caller at a time.
const MoestroCudaFunctions& functions();

}  // namespace moestro::kernels::cuda::emulated
