#pragma once
// A stamp for "used last", comparable between the processes of one host and cheap enough for the path of an expert hit.
// It only orders evictions; correctness does not depend on it.

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace moestro::shm {

/// A stamp has 48 bits. Its unit is 1024 cycles, well under a microsecond, so it wraps around after years.
inline constexpr uint64_t kUseStampMax = (uint64_t{1} << 48) - 1;

inline uint64_t use_stamp() {
#if defined(__x86_64__)
  return __rdtsc() >> 10 & kUseStampMax;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) >> 10 & kUseStampMax;
#endif
}

}  // namespace moestro::shm
