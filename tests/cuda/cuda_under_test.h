#pragma once
// CUDA kernels as the backend of the operation tests: run by the emulator, or, if MOESTRO_CUDA_PLUGIN names the plugin,
// by the machine's first device; skipped if there is none.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "common/check.h"
#include "tests/cuda/host_facing_ops.h"
#ifdef MOESTRO_CUDA_PLUGIN
#include "kernels/devices/device_registry.h"
#else
#include "kernels/cuda/emulated/functions.h"
#endif

namespace moestro::kernels::test {

#ifdef MOESTRO_CUDA_PLUGIN
constexpr bool kEmulated = false;
/// The plugin built with this test; on other machines the environment names it.
inline const char* plugin_under_test() {
  const char* place = std::getenv("MOESTRO_CUDA_PLUGIN");
  return place != nullptr ? place : MOESTRO_CUDA_PLUGIN;
}
inline const MoestroCudaFunctions& functions_under_test() {
  const auto functions = cuda_functions(plugin_under_test());
  MOESTRO_CHECK(functions.is_ok(), functions.status().message());
  return **functions;
}
#define SKIP_WITHOUT(isa)                                                                                 \
  if (const auto devices = ::moestro::kernels::probe_cuda(::moestro::kernels::test::plugin_under_test()); \
      !devices.is_ok())                                                                                   \
  GTEST_SKIP() << devices.status().message()
#else
constexpr bool kEmulated = true;
inline const MoestroCudaFunctions& functions_under_test() { return cuda::emulated::functions(); }
#define SKIP_WITHOUT(isa) static_cast<void>(isa)
#endif

/// Only one, for any processor and number of threads.
inline std::vector<Isa> all_isas() { return {Isa::kScalar}; }
inline std::unique_ptr<HostFacingOps> cuda_ops(bool deterministic = true) {
  return std::make_unique<HostFacingOps>(functions_under_test(), deterministic);
}
inline std::unique_ptr<Ops> cpu_ops(Isa, int = 2, bool = true) { return cuda_ops(); }

/// Skipped if there is no device.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT(0); }
};

}  // namespace moestro::kernels::test
