#pragma once
// Operations that are made while one of these is there take long prompts of the gated delta rule in chunks.

#include <cstdlib>

namespace moestro::kernels::test {

struct AskedChunks {
  AskedChunks() { ::setenv("MOESTRO_CUDA_DELTA_CHUNKS", "1", 1); }
  ~AskedChunks() { ::unsetenv("MOESTRO_CUDA_DELTA_CHUNKS"); }
  AskedChunks(const AskedChunks&) = delete;
  AskedChunks& operator=(const AskedChunks&) = delete;
};

}  // namespace moestro::kernels::test
