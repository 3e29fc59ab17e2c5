#pragma once
// What the encoders share. Private to common/formats.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/float16.h"

namespace moestro::formats {

inline constexpr float kF16Max = 65504.0f;

inline float as_f16(float x) { return f16_to_f32(f32_to_f16(std::clamp(x, -kF16Max, kF16Max))); }

inline void put_f16(uint8_t* to, float f) {
  const uint16_t h = f32_to_f16(f);
  std::memcpy(to, &h, sizeof h);
}

// Blocks of 256; kernels and files have them as common/formats/blocks.h says.
void encode_q4_k(const float* x, uint8_t* block);
void encode_q5_k(const float* x, uint8_t* block);
void encode_q6_k(const float* x, uint8_t* block);

}  // namespace moestro::formats
