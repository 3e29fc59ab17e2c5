#pragma once
// The demo model decoding on an emulated device, for tests that count what it finds.

#include <string>
#include <vector>

#include "tests/device/device_bench.h"

namespace moestro::device::testing {

engine::testing::Fixture demo_model();
/// Of one of its experts, as BF16.
uint64_t demo_expert_bytes();
/// `count` of its reference's prompts, a few words each, from as many domains as may be.
std::vector<std::vector<TokenId>> demo_prompts(size_t count);

/// What the device did while decoding.
struct Decoded {
  uint64_t steps = 0, uses = 0, hits = 0;
  double time_s = 0, stall_s = 0;
  double hit_percent() const { return 100.0 * static_cast<double>(hits) / static_cast<double>(uses); }
};

/// Sequence `id` reads `prompt` and decodes `tokens` more, the likeliest each; what they use is added to `out`. A
/// prompt of one token is as good as decoded, and counts too.
Status decode(engine::testing::Bench& bench, uint64_t id, const std::vector<TokenId>& prompt, int tokens, Decoded& out);

}  // namespace moestro::device::testing
