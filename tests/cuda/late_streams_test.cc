// The engine on a CUDA device whose streams run as late as they may: what it reads it has waited for, and what it overwrites nobody reads any more.

#include <gtest/gtest.h>

#include <tuple>

#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulated/streams.h"
#include "tests/device/device_bench.h"

namespace moestro::engine::testing {
namespace {

namespace emulated = kernels::cuda::emulated;
using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;

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
  said.scores = device.bench().score({prompts.at(0).ids, prompts.at(1).ids}, 9);
  said.scores.push_back(device.bench().score({prompts.at(1).ids}, 1).front());
  said.tokens = device.bench().greedy(prompts.at(0).ids, 8);
  return said;
}

TEST(LateStreams, ChangeNoBit) {
  for (const Fixture& fixture : fixtures()) {
    DeviceBenchOptions options{.slots = 1 << 20, .cuda = &emulated::functions()};
    const Said want = said(fixture, options, 0);
    for (const auto& [slots, expects_all, late_host] : {std::tuple(2, false, false), {2, true, false}, {5, true, true}, {1 << 20, false, true}}) {
      options.slots = slots, options.expects_all = expects_all, options.late_host = late_host, options.predictor = "gate";
      EXPECT_TRUE(said(fixture, options, 3) == want) << fixture.name << ", " << slots << " slots" << (expects_all ? ", queued ahead" : "");
    }
  }
}

}  // namespace
}  // namespace moestro::engine::testing
