// What benchmarks hold the engine against: that the loops do what their numbers say.

#include "kernels/limits/limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/float16.h"

namespace moestro::kernels::limits {
namespace {

constexpr int64_t kBytes = int64_t{8} << 20;

std::unique_ptr<Limits> make(Ops& ops) {
  auto limits = Limits::create(ops, kBytes);
  EXPECT_TRUE(limits.is_ok()) << limits.status().message();
  return std::move(*limits);
}

TEST(Limits, EveryInstructionSetHasItsPeaks) {
  for (const Isa isa : kIsas) {
    if (!has_isa(isa)) continue;
    const auto ops = make_cpu_ops({.threads = 1, .isa = isa});
    const auto limits = make(*ops);
    ASSERT_FALSE(limits->loops().empty());
    EXPECT_STREQ(limits->loops().front().name, "f32");
    for (const cpu::PeakLoop& loop : limits->loops()) {
      EXPECT_TRUE(std::isfinite(loop.run(1000))) << loop.instruction;
      EXPECT_NE(loop.run(1), loop.run(3)) << loop.instruction << ": rounds that change nothing are not computed";
      EXPECT_GT(limits->peak(loop).rate(), 0) << loop.instruction;
    }
  }
}

TEST(Limits, StreamsAtLeastWhatWasAskedFor) {
  const auto ops = make_cpu_ops({.threads = 2, .isa = best_isa()});
  const auto limits = make(*ops);
  EXPECT_EQ(limits->bytes(), kBytes);
  for (const int64_t bytes : {kBytes / 4, kBytes, 3 * kBytes}) {
    EXPECT_EQ(limits->read(bytes).amount, static_cast<double>(bytes));
    for (const DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
      const Measured m = limits->matvec(d, bytes);
      EXPECT_GE(m.amount, static_cast<double>(bytes)) << dtype_name(d);
      EXPECT_LT(m.amount, static_cast<double>(bytes + kBytes)) << dtype_name(d);
      EXPECT_GT(m.seconds, 0);
    }
  }
}

TEST(Limits, AnExpertLargerThanTheMemoryIsCut) {
  const auto ops = make_cpu_ops({.threads = 1, .isa = best_isa()});
  const auto limits = make(*ops);
  EXPECT_EQ(std::fmod(limits->expert_gemm(DType::kBF16, 64, 96, 3).amount, 6.0 * 3 * 64 * 96), 0);
  EXPECT_GT(limits->expert_gemm(DType::kF32, 1024, 4096, 1).rate(), 0);
  // Each matrix in its own format: 384 columns are no whole number of q4_k's blocks.
  EXPECT_GT(limits->expert_gemm({DType::kQ4K, DType::kQ4K, DType::kQ8_0}, 256, 384, 3).rate(), 0);
}

TEST(StreamedMemory, NumbersAreSmallAndNormal) {
  cpu::ThreadPool pool(2);
  int64_t told = 0;
  const auto memory = StreamedMemory::create(kBytes, pool, [&](int64_t done) { told = done; });
  ASSERT_TRUE(memory.is_ok());
  EXPECT_EQ(told, kBytes);
  for (int64_t i = 0; i < kBytes; i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, (*memory)->data() + i, 2);
    const float value = std::fabs(bf16_to_f32(bits));
    ASSERT_TRUE(value < 1e-3f && std::isnormal(value)) << i;
  }
}

}  // namespace
}  // namespace moestro::kernels::limits
