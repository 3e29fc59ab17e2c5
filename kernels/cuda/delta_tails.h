#pragma once
// The part of a sequence's states that is its last inputs.

#include "kernels/cuda/delta.h"

namespace moestro::kernels::cuda {

/// The inputs of the last positions before each of the sequence's states, by all blocks of the sequence. The slot that
/// was read is written last, and from its oldest input on.
__device__ inline void write_tails(const MoestroCudaDelta& a, const MoestroCudaDeltaSequence& s, const float* before,
                                   bool keeps) {
  const int64_t channels = delta_channels(a), slot_floats = delta_slot_floats(a), back = a.conv - 1;
  const MoestroCudaDeltaWrite* const writes = a.writes + s.first_write;
  for (int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; c < channels;
       c += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    if (keeps)
      for (int64_t j = 0; j < back; ++j) a.kept[s.kept * slot_floats + j * channels + c] = before[j * channels + c];
    for (int last = 0; last < 2; ++last) {
      for (int32_t w = 0; w < s.writes; ++w) {
        if ((writes[w].slot == s.state) != (last == 1)) continue;
        float* const tail = a.states + writes[w].slot * slot_floats;
        for (int64_t j = 0; j < back; ++j) {
          const int64_t token = writes[w].tokens - back + j;
          float x = 0.0f;
          if (token >= 0)
            x = *delta_input(a, s.first_row + token, c);
          else if (before)
            x = before[(token + back) * channels + c];
          tail[j * channels + c] = x;
        }
      }
    }
  }
}

}  // namespace moestro::kernels::cuda
