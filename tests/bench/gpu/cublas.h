#pragma once
// cuBLAS as a baseline, if it is installed. It is loaded at run time, because Moestro itself does not need it.

#include <string>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {

struct Cublas {
  DenseProduct product;
  std::string name;  ///< "cuBLAS (libcublas.so.13)"
};

/// `path`: a library's file; empty: libcublas.so.13 or .12, wherever the loader finds them. For the device that this
/// thread has selected; stays loaded. An error is the loader's message.
Result<Cublas> load_cublas(const std::string& path);

}  // namespace moestro::bench
