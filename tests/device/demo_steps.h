#pragma once
// What tests that measure the demo model, step by step, have in common: a floor under each expert makes it as slow as a
// large model.

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "tests/device/demo_decode.h"

namespace moestro::device::testing {

inline engine::testing::BenchOptions demo_engine(Nanos floor, bool deterministic = false) {
  return {.experts = DType::kBF16,
          .dense = DType::kBF16,
          .deterministic = deterministic,
          .engine = {.model = "m", .kv_tokens = 4096, .compute_floor = floor}};
}

/// Prompts of `tokens` tokens that have little in common.
inline std::vector<TokenId> demo_prompt(uint32_t number, uint32_t tokens, int64_t vocab) {
  std::vector<TokenId> prompt;
  for (uint32_t p = 0; p < tokens; ++p)
    prompt.push_back(static_cast<TokenId>((number * 977 + p * 131 + 57) % static_cast<uint32_t>(vocab)));
  return prompt;
}

inline double median(std::vector<double> values) {
  MOESTRO_CHECK(!values.empty(), "a median of something");
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace moestro::device::testing
