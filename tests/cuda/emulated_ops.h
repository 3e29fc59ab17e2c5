#pragma once
// The CUDA kernels, run by their emulator, as the backend under test. Device memory is the host's there, so tests hand over what they have.

#include <memory>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/emulated/functions.h"

namespace moestro::kernels::test {

inline std::vector<Isa> all_isas() { return {Isa::kScalar}; }

inline std::unique_ptr<cuda::CudaOps> emulated_ops() {
  auto ops = cuda::CudaOps::create(cuda::emulated::functions(), {.deterministic = true});
  MOESTRO_CHECK(ops.is_ok(), "the emulator has a stream");
  return std::move(*ops);
}
/// One, whatever the processor and the number of threads.
inline std::unique_ptr<Ops> cpu_ops(Isa, int = 2, bool = true) { return emulated_ops(); }

}  // namespace moestro::kernels::test
