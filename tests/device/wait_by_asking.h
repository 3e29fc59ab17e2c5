#pragma once
// wait_event() for function tables whose query_event() is the test's own.

#include <thread>

#include "kernels/plugin/plugin_abi.h"

namespace moestro::device::testing {

template <auto kQuery>
MoestroCudaResult wait_by_asking(MoestroCudaEvent event) {
  for (;; std::this_thread::yield())
    if (const MoestroCudaResult result = kQuery(event); result != MOESTRO_CUDA_NOT_READY) return result;
}

}  // namespace moestro::device::testing
