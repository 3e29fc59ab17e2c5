#pragma once

#include <cstdint>

namespace moestro::cuda {
inline constexpr int64_t kFloatBytes = sizeof(float);
}  // namespace moestro::cuda
