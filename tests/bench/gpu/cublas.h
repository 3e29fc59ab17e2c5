#pragma once
// cuBLAS as a yardstick, where it is: loaded at run time, for nothing of Moestro needs it.

#include <string>

#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {

struct Cublas {
  DenseProduct product;
  std::string name;  ///< "cuBLAS (libcublas.so.13)"
};

/// `path`: a library's file; empty: libcublas.so.13 or .12, wherever the loader finds them. For the device that this
/// thread has chosen; stays loaded. Otherwise what the loader said.
Result<Cublas> load_cublas(const std::string& path);

}  // namespace moestro::bench
