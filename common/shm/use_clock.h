#pragma once
// A stamp for "used last", comparable between the processes of one host and cheap enough for the path of an expert hit. It orders
// evictions and nothing else: no correctness rests on it.

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace moestro::shm {

inline uint64_t use_stamp() {
#if defined(__x86_64__)
  return __rdtsc() >> 1;  // the top bit is the pin word's
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace moestro::shm
