#pragma once
// Philox 4x32-10 (Salmon et al., SC 2011) as in services/worker/engine/philox.h, so that the device draws what the host
// would.

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

/// Uniform in [0, 1), 53 bits, of (seed, choice, position).
__device__ inline double uniform_at(uint64_t seed, uint32_t choice, uint32_t position) {
  uint32_t c0 = position, c1 = choice, c2 = 0, c3 = 0, k0 = static_cast<uint32_t>(seed),
           k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return static_cast<double>((static_cast<uint64_t>(c0) << 32 | c1) >> 11) * (1.0 / 9007199254740992.0);
}

}  // namespace moestro::kernels::cuda
