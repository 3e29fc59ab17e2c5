// States of sequences on a CUDA device: a conversation goes on from what was kept bitwise as if it had been computed
// whole, however many experts the device holds, and in whatever company.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/cuda/asked_chunks.h"
#include "tests/cuda/cuda_under_test.h"
#include "tests/device/device_bench.h"

namespace moestro::engine::testing {
namespace {

using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;
constexpr int32_t kAll = 1 << 20;

std::vector<Fixture> with_states() {
  std::vector<Fixture> all = fixtures();
  std::erase_if(all, [](const Fixture& fixture) { return !fixture.has_states(); });
  return all;
}

class CudaStatesTest : public ::testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(0);
    for (int i = 0; i < 90; ++i) ids_.push_back(static_cast<TokenId>((i * 37 + 11 * (i / 7)) % 128));
  }
  std::vector<TokenId> part(size_t first, size_t end) const {
    return {ids_.begin() + static_cast<std::ptrdiff_t>(first), ids_.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  DeviceBenchOptions on_cuda(int32_t slots, DType kv = DType::kF32) const {
    DeviceBenchOptions options{.slots = slots, .predictor = slots == kAll ? "none" : "gate",
                               .cuda = &kernels::test::functions_under_test()};
    options.engine.engine.kv_dtype = kv;
    options.engine.engine.state_slots = 64;
    return options;
  }
  /// Scores of ids 65 to 89 in the third turn of a conversation: each turn begins behind blocks of the one before it,
  /// beside sequences that go on. The first turn is computed in two steps.
  std::vector<float> third_turn(Bench& bench) {
    bench.add(1, part(0, 21));
    EXPECT_TRUE(bench.run().is_ok());
    bench.add(1, part(21, 50));
    bench.add(7, part(3, 12));
    EXPECT_TRUE(bench.run().is_ok());
    bench.add_behind(1, 3, 2, part(48, 70));
    bench.add(7, {9});
    EXPECT_TRUE(bench.run().is_ok());
    bench.add(1, {7}).sample = true;
    PlanSequence& third = bench.add_behind(2, 4, 3, part(64, 89));
    third.score_targets = part(65, 90);
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok() && outcome->sequences[1].status.is_ok());
    std::vector<float> scores;
    for (const auto& score : outcome->sequences[1].scores) scores.push_back(static_cast<float>(score.logprob));
    return scores;
  }
  static bool same(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  }

  std::vector<TokenId> ids_;
};
INSTANTIATE_TEST_SUITE_P(Fixtures, CudaStatesTest, ::testing::ValuesIn(with_states()),
                         [](const auto& param) { return param.param.name; });

TEST_P(CudaStatesTest, TurnsOfAConversationGoOnFromKeptStates) {
  for (const DType kv : {DType::kF32, DType::kInt8}) {
    DeviceBench whole(GetParam(), on_cuda(kAll, kv)), turns(GetParam(), on_cuda(kAll, kv));
    const auto want = whole.bench().score({ids_}, ids_.size()).front();
    EXPECT_TRUE(same(third_turn(turns.bench()), std::span(want).subspan(64))) << "KV in " << dtype_name(kv);
  }
}

/// Layers that were queued on a wrong assumption have overwritten states by then.
TEST_P(CudaStatesTest, BeingWrongAboutWhatIsThereChangesNoState) {
  DeviceBench all(GetParam(), on_cuda(kAll));
  const auto want = third_turn(all.bench());
  uint64_t rewinds = 0;
  for (const int32_t slots : {1, 4}) {
    auto options = on_cuda(slots);
    options.expects_all = true;
    DeviceBench few(GetParam(), options);
    EXPECT_TRUE(same(third_turn(few.bench()), want)) << slots << " slots";
    rewinds += few.bench().device_work().rewinds;
  }
  EXPECT_GT(rewinds, 0u);
}

TEST_P(CudaStatesTest, CutsChangeNoBit) {
  DeviceBench device(GetParam(), on_cuda(kAll));
  const auto want = device.bench().score({ids_}, ids_.size()).front();
  for (const size_t chunk : {1, 7, 64}) {
    const auto got = device.bench().score({part(5, 40), ids_, part(0, 3)}, chunk);
    EXPECT_TRUE(same(got[1], want)) << "chunks of " << chunk;
  }
}

/// In chunks, in one step and in two, three states of which are kept; also where layers are computed again.
TEST_P(CudaStatesTest, LongPromptsAgreeWithDeterministicMode) {
  std::vector<TokenId> ids;
  for (int i = 0; i < 220; ++i) ids.push_back(static_cast<TokenId>((i * 29 + 5 * (i / 9)) % 128));
  DeviceBench exact(GetParam(), on_cuda(kAll));
  const auto want = exact.bench().score({ids}, ids.size()).front();
  const kernels::test::AskedChunks asked;
  for (const int32_t slots : {kAll, 1}) {
    auto options = on_cuda(slots);
    options.engine.deterministic = false;
    options.engine.engine.state_slots = 44;
    options.expects_all = slots == 1;
    DeviceBench fast(GetParam(), options);
    const auto rows = fast.bench().score({ids}, 100).front();  // too short for chunks
    std::vector<size_t> steps{140};
    if (slots == kAll) steps.push_back(ids.size());
    for (const size_t step : steps) {
      const auto got = fast.bench().score({ids}, step).front();
      ASSERT_EQ(got.size(), want.size());
      double apart = 0.0, all = 0.0;
      for (size_t i = 0; i < got.size(); ++i) {
        apart += std::abs(static_cast<double>(got[i]) - want[i]);
        all += std::abs(static_cast<double>(want[i]));
      }
      EXPECT_LT(apart / all, 2e-2) << slots << " slots, steps of " << step;
      EXPECT_FALSE(same(got, rows)) << "in chunks";
    }
  }
}

}  // namespace
}  // namespace moestro::engine::testing
