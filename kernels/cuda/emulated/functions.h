#pragma once

#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels::cuda::emulated {

/// The functions of the plugin, with the same kernels run by the emulator. Never freed; one caller at a time.
const MoestroCudaFunctions& functions();

/// CUDA's numbers for refused registrations.
inline constexpr MoestroCudaResult kErrorInvalidValue = 1, kErrorNotSupported = 801;

}  // namespace moestro::kernels::cuda::emulated
