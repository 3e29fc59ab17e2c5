// The engine on a CUDA device whose streams run as late as they may: what it reads it has waited for, and what it
// overwrites nobody reads any more.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>
#include <tuple>

#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulator/streams.h"
#include "tests/device/device_bench.h"
#include "tests/engine/moved_blocks.h"

namespace moestro::engine::testing {
namespace {

namespace emulated = kernels::cuda::emulated;
using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;
using device::testing::on_gpus;
using device::testing::one_of_each_gpu_layer;

/// Log-probabilities of two prompts in one batch, and of one token after another; then tokens.
struct Said {
  std::vector<std::vector<float>> scores;
  std::vector<TokenId> tokens;
  friend bool operator==(const Said&, const Said&) = default;
};

Said said(const Fixture& fixture, const DeviceBenchOptions& options, int32_t late) {
  emulated::make_streams_late(late);
  DeviceBench device(fixture, options);
  emulated::make_streams_late(0);
  const auto prompts = fixture.prompts("f32");
  Said said;
  said.scores = device.bench().score({prompts.at(1).ids, prompts.at(2).ids}, 9);
  said.scores.push_back(device.bench().score({prompts.at(1).ids}, 1).front());
  said.tokens = device.bench().greedy(prompts.at(1).ids, 8);
  return said;
}

TEST(LateStreams, ChangeNoBit) {
  for (const Fixture& fixture : one_of_each_gpu_layer()) {
    DeviceBenchOptions options{.slots = 1 << 20, .cuda = &emulated::functions()};
    const Said want = said(fixture, options, 0);
    for (const auto& [slots, expects_all, late_host] :
         {std::tuple(2, false, false), {2, true, false}, {5, true, true}, {1 << 20, false, true}}) {
      options.slots = slots, options.expects_all = expects_all, options.late_host = late_host,
      options.predictor = "gate";
      EXPECT_TRUE(said(fixture, options, 3) == want)
          << fixture.name << ", " << slots << " slots" << (expects_all ? ", queued ahead" : "");
    }
  }
}

TEST(LateStreams, FindMovedBlocksInTheirPlaces) {
  for (const Fixture& fixture : one_of_each_gpu_layer()) {
    DeviceBenchOptions options{.slots = 5, .cuda = &emulated::functions()};
    options.engine.engine.kv_tokens = 512;
    DeviceBench still(fixture, options);
    if (still.bench().engine().limits().visible.window > 0) continue;  // refused beside a window
    const auto want = decode_with_moves(still.bench(), fixture, 0);
    options.engine.engine.kv_host_tokens = kHostBlocksOfMoves * kernels::kKvBlockTokens;
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      emulated::make_streams_late(3);
      DeviceBench moved(fixture, options);
      emulated::make_streams_late(0);
      EXPECT_EQ(decode_with_moves(moved.bench(), fixture, seed), want) << fixture.name << ", seed " << seed;
    }
  }
}

using Time = std::chrono::steady_clock;
constexpr auto kLatency = std::chrono::microseconds(500);
thread_local std::map<MoestroCudaEvent, Time::time_point> asked;

/// The emulator's functions on a slow link: a copy's event comes a while after it was first asked for. Only the link's
/// thread asks, and waits for what it has asked for.
const MoestroCudaFunctions& slow_link() {
  static MoestroCudaFunctions table = emulated::functions();
  table.query_event = [](MoestroCudaEvent event) -> MoestroCudaResult {
    const auto first = asked.try_emplace(event, Time::now()).first;
    if (Time::now() - first->second < kLatency) return MOESTRO_CUDA_NOT_READY;
    asked.erase(first);
    return emulated::functions().query_event(event);
  };
  table.wait_event = [](MoestroCudaEvent event) -> MoestroCudaResult {
    if (const auto first = asked.find(event); first != asked.end()) {
      std::this_thread::sleep_until(first->second + kLatency);
      asked.erase(first);
    }
    return emulated::functions().wait_event(event);
  };
  return table;
}

/// Without --deterministic: of experts that would take long to move, those no copy of which has begun are computed
/// where they lie.
TEST(SlowLink, ExpertsOnTheCpuGiveTheReferencesLogProbabilities) {
  for (const Fixture& fixture : on_gpus(one_of_each_architecture())) {
    const Reference r = fixture.prompts("f32").at(2);
    DeviceBenchOptions options{.slots = 3, .cuda = &slow_link(), .copies_seem_slow = true};
    options.engine.deterministic = false;
    DeviceBench device(fixture, options);
    const auto scores = device.bench().score({r.ids}, 7).front();
    ASSERT_EQ(scores.size(), r.logprobs.size());
    for (size_t i = 0; i < scores.size(); ++i)
      ASSERT_NEAR(scores[i], r.logprobs[i], 1e-3) << fixture.name << ", position " << i;
    EXPECT_GT(device.computed_on_cpu(), 0u) << fixture.name;
    const DeviceWork& work = device.bench().device_work();
    EXPECT_EQ(work.host_experts, device.computed_on_cpu()) << fixture.name;
    EXPECT_GE(work.host_rows, work.host_experts) << fixture.name << ": each has a row at least";
  }
}

}  // namespace
}  // namespace moestro::engine::testing
