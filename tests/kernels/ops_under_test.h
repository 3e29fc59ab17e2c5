#pragma once
// Which backend the tests of operations test: the CPU's, or the CUDA kernels (tests/cuda builds the same tests once
// more).

#include <iterator>
#include <memory>
#include <vector>

#include "kernels/ops.h"

#if MOESTRO_TEST_CUDA
#include "tests/cuda/cuda_under_test.h"
#else
namespace moestro::kernels::test {

/// Every instruction set there is code for; tests of those the machine lacks are skipped, and scripts/test names them.
inline std::vector<Isa> all_isas() {
  return {std::begin(kIsas), std::end(kIsas)};
}
inline std::unique_ptr<Ops> cpu_ops(Isa isa, int threads = 2, bool deterministic = true) {
  return make_cpu_ops({.threads = threads, .deterministic = deterministic, .isa = isa});
}

#define SKIP_WITHOUT(isa) \
  if (!has_isa(isa)) GTEST_SKIP() << "this machine lacks " << isa_name(isa)

}  // namespace moestro::kernels::test
#endif
