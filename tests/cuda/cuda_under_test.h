#pragma once
// CUDA kernels as the backend that the tests of operations test: run by the emulator, or, where MOESTRO_CUDA_PLUGIN names the plugin, by the
// machine's first device; those are skipped where there is none.

#include <memory>
#include <vector>

#include "common/check.h"
#include "tests/cuda/host_facing_ops.h"
#ifdef MOESTRO_CUDA_PLUGIN
#include "kernels/device_registry.h"
#else
#include "tests/cuda/emulated_ops.h"
#endif

namespace moestro::kernels::test {

#ifdef MOESTRO_CUDA_PLUGIN
inline const MoestroCudaFunctions& functions_under_test() {
  const auto functions = cuda_functions(MOESTRO_CUDA_PLUGIN);
  MOESTRO_CHECK(functions.is_ok(), functions.status().message());
  return **functions;
}
#define SKIP_WITHOUT(isa) \
  if (const auto devices = probe_cuda(MOESTRO_CUDA_PLUGIN); !devices.is_ok()) GTEST_SKIP() << devices.status().message()
#else
inline const MoestroCudaFunctions& functions_under_test() { return cuda::emulated::functions(); }
#define SKIP_WITHOUT(isa) static_cast<void>(isa)
#endif

/// One, whatever the processor and the number of threads.
inline std::vector<Isa> all_isas() { return {Isa::kScalar}; }
inline std::unique_ptr<Ops> cpu_ops(Isa, int = 2, bool = true) { return std::make_unique<HostFacingOps>(functions_under_test(), true); }

}  // namespace moestro::kernels::test
