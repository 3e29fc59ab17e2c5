// A program without kernels for all instruction sets: isa.cc compiled as if AVX2's alone were there.

#include <gtest/gtest.h>

#include <array>

#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace moestro::kernels {
namespace {

TEST(FewSets, AMachineHasThoseWithKernelsAlone) {
  EXPECT_TRUE(has_isa(Isa::kScalar));
  for (const Isa isa : kIsas) {
    if (isa != Isa::kScalar && isa != Isa::kAvx2) EXPECT_FALSE(has_isa(isa)) << isa_name(isa);
  }
  EXPECT_EQ(best_isa(), has_isa(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar);
  EXPECT_GE(fastest_isa_of_machine(), best_isa()) << "the machine may have more";
}

TEST(FewSets, OperationsTakeTheBestThatIsThere) {
  const auto ops = make_cpu_ops({.threads = 1, .isa = Isa::kAvx512Amx});
  EXPECT_EQ(ops->options().isa, best_isa());
  std::array<float, 4> x = {1, -2, 3, -4};
  ops->clamp(x.data(), x.size(), 2.5f);
  EXPECT_EQ(x, (std::array<float, 4>{1, -2, 2.5f, -2.5f}));
}

TEST(FewSetsDeathTest, KernelsThatAreNotThereAreRefused) {
  EXPECT_DEATH(cpu::kernel_table(Isa::kAvx512), "or this program kernels for them");
}

}  // namespace
}  // namespace moestro::kernels
