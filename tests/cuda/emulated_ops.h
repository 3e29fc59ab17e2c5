#pragma once
// The CUDA kernels, run by their emulator. Its device memory is host memory, so tests can pass their own pointers.

#include <memory>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/emulated/functions.h"

namespace moestro::kernels::test {

inline std::unique_ptr<cuda::CudaOps> emulated_ops(bool deterministic = true) {
  auto ops = cuda::CudaOps::create(cuda::emulated::functions(), {.deterministic = deterministic});
  MOESTRO_CHECK(ops.is_ok(), "the emulator has a stream");
  return std::move(*ops);
}

}  // namespace moestro::kernels::test
