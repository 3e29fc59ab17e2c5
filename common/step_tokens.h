#pragma once
// The size of steps where nobody has said it. Planner, programs and scheduler agree on it.

#include <cstdint>

namespace moestro {

/// Most tokens of a step where more gain little, because what a step reads is there.
inline constexpr int64_t kUsualStepTokens = 512;

}  // namespace moestro
