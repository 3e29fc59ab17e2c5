#pragma once
// Philox 4x32-10, a counter-based random number generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011). The number for (seed, choice, position) needs no state, so it is the same after a restart or on another
// worker.

#include <array>
#include <cstdint>

namespace moestro::engine {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in [0, 1), 53 bits.
inline double uniform_at(uint64_t seed, uint32_t choice, uint32_t position) {
  const auto r = philox4x32({position, choice, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>(((uint64_t{r[0]} << 32) | r[1]) >> 11) * 0x1.0p-53;
}

}  // namespace moestro::engine
