#pragma once
// Converts stored numbers to f32, one or eight at a time, and rounds f32 to the stored format.

#include "kernels/cuda/simt.h"
#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

__device__ inline float bf16_value(uint16_t half) { return bits_to_float(static_cast<uint32_t>(half) << 16); }

/// To nearest, ties to even; NaN stays NaN.
__device__ inline uint16_t bf16_bits(float f) {
  const uint32_t u = float_to_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// As Ops::exponentials.
__device__ inline float exponential(float x, float shift, float factor) {
  const float e = expf((x - shift) * factor);
  return e < 2e-38f ? 0.0f : e;
}

/// A pair of numbers rotated by an angle of cosine c and sine s.
__device__ inline float rotated_first(float first, float second, float c, float s) {
  return multiply_add(first, c, -(second * s));
}
__device__ inline float rotated_second(float first, float second, float c, float s) {
  return multiply_add(second, c, first * s);
}

/// How one number of a format is stored and read.
struct F32 {
  using Stored = float;
  __device__ static float value(float f) { return f; }
  __device__ static float stored(float f) { return f; }
};
struct BF16 {
  using Stored = uint16_t;
  __device__ static float value(uint16_t h) { return bf16_value(h); }
  __device__ static uint16_t stored(float f) { return bf16_bits(f); }
};
struct F16 {
  using Stored = uint16_t;
  __device__ static float value(uint16_t h) { return f16_value(h); }
  __device__ static uint16_t stored(float f) { return f16_bits(f); }
};
/// Without its scale.
struct Int8 {
  using Stored = int8_t;
  __device__ static float value(int8_t q) { return static_cast<float>(q); }
};

/// 16 bytes, loaded and stored at once.
struct alignas(16) Bytes16 {
  uint32_t words[4];
};
struct alignas(8) Bytes8 {
  uint32_t words[2];
};

#if !defined(__CUDACC__)
/// As a device demands it of an access of sizeof(B) bytes.
template <typename B>
void check_alignment(const void* at) {
  MOESTRO_CHECK(reinterpret_cast<uintptr_t>(at) % sizeof(B) == 0, "a kernel loads or stores at an unaligned address");
}
#endif

/// Loads and stores data at once that is read or written as other types elsewhere. `at` is a multiple of sizeof(B).
template <typename B>
__device__ inline B load_as(const void* at) {
#if defined(__CUDACC__)
  return *static_cast<const B*>(at);
#else
  check_alignment<B>(at);
  B bytes;
  std::memcpy(&bytes, at, sizeof bytes);  // of a host's compiler the types must be told
  return bytes;
#endif
}
template <typename B>
__device__ inline void store_as(void* at, const B& bytes) {
#if defined(__CUDACC__)
  *static_cast<B*>(at) = bytes;
#else
  check_alignment<B>(at);
  std::memcpy(at, &bytes, sizeof bytes);
#endif
}

__device__ inline uint16_t half_of(const uint32_t* words, int i) {
  return static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
}
__device__ inline int byte_of(const uint32_t* words, int i) {
  return static_cast<int>(words[i / 4] >> (i % 4 * 8) & 0xffu);
}
__device__ inline int8_t signed_byte_of(const uint32_t* words, int i) { return static_cast<int8_t>(byte_of(words, i)); }

/// Eight numbers of format N from `from`, which is aligned to their bytes (at most 16).
template <typename N>
__device__ inline void load8(const typename N::Stored* from, float (&to)[8]) {
  if constexpr (sizeof(typename N::Stored) == 4) {
    const Bytes16 a = load_as<Bytes16>(from), b = load_as<Bytes16>(from + 4);
    for (int i = 0; i < 4; ++i) {
      to[i] = bits_to_float(a.words[i]);
      to[i + 4] = bits_to_float(b.words[i]);
    }
  } else if constexpr (sizeof(typename N::Stored) == 2) {
    const Bytes16 a = load_as<Bytes16>(from);
    for (int i = 0; i < 8; ++i) to[i] = N::value(half_of(a.words, i));
  } else {
    const Bytes8 a = load_as<Bytes8>(from);
    for (int i = 0; i < 8; ++i) to[i] = N::value(signed_byte_of(a.words, i));
  }
}

/// The same, one by one, for those before `count`; zeros after them.
template <typename N>
__device__ inline void load8_some(const typename N::Stored* from, int64_t count, float (&to)[8]) {
  for (int i = 0; i < 8; ++i) to[i] = i < count ? N::value(from[i]) : 0.0f;
}

}  // namespace moestro::kernels::cuda
