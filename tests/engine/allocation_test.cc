// After warm-up, a decode step allocates nothing on the heap: what it returns lies in the outcome that the caller hands
// in again.

#include <gtest/gtest.h>

#include "tests/engine/engine_bench.h"
#include "tests/kernels/counted_allocations.h"

namespace moestro::engine::testing {
namespace {

using ::moestro::test::allocations;

constexpr uint64_t kSequences = 4;
constexpr int kWarmUp = 20, kSteps = 40;

TEST(AllocationTest, DecodeStepsMakeNoneAfterWarmUp) {
  for (const auto& [deterministic, schedule] : {std::pair(true, ScheduleKind::kLayerwise),
                                                std::pair(false, ScheduleKind::kLayerwise),
                                                std::pair(false, ScheduleKind::kExpertPipeline)}) {
    for (const DType dtype : {DType::kBF16, DType::kInt8}) {
      BenchOptions options{.experts = dtype, .dense = dtype, .deterministic = deterministic, .threads = 2};
      options.engine.schedule = schedule;
      options.engine.cut.count = 3;
      if (deterministic) options.engine.micro_batches = MicroBatches::kInTurn, options.micro_batch = 1;
      Bench bench(any_fixture(), std::move(options));
      // Attention's scratch grows, by half at a time, with the longest context met: one that is longer than any below.
      // It comes first, so that the step has several micro-batches, as those below have.
      bench.add(99, std::vector<TokenId>(2 * (kWarmUp + kSteps), 5)).sample = true;
      for (uint64_t id = 1; id <= kSequences; ++id) bench.add(id, {1, 2, 3}).sample = true;
      StepOutcome out;
      ASSERT_TRUE(bench.run(out).is_ok());
      bench.release(99);
      int64_t made = 0;
      for (int i = 0; i < kWarmUp + kSteps; ++i) {
        // Every expert is met in the warm-up; later steps meet fewer or the same.
        for (uint64_t id = 1; id <= kSequences; ++id)
          bench.add(id, {static_cast<TokenId>(3 + (i % kWarmUp) * 4 + static_cast<int>(id))}).sample = true;
        const int64_t before = allocations.load();
        const Status status = bench.run(out);
        if (i >= kWarmUp) made += allocations.load() - before;
        ASSERT_TRUE(status.is_ok()) << status.message();
        ASSERT_EQ(out.sequences.size(), kSequences);
        ASSERT_EQ(out.sequences[0].sampled.size(), 1u);
      }
      EXPECT_EQ(made, 0) << "in " << kSteps << " steps, " << dtype_name(dtype)
                         << (deterministic ? ", deterministic, micro-batches in turn" : ", fast")
                         << (schedule == ScheduleKind::kLayerwise ? "" : ", expert pipeline");
    }
  }
}

}  // namespace
}  // namespace moestro::engine::testing
