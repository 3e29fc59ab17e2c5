#pragma once
// What --mixed does not go with, said in one way by all who look: flags, engine and devices.

#include "common/status.h"

namespace moestro {

inline Status mixed_excludes_deterministic() {
  return invalid_argument(
      "--mixed and --deterministic exclude each other: which copy of an expert is there depends on other requests and "
      "on time");
}

inline Status mixed_on_a_gpu() {
  return unsupported("--mixed on a GPU: only the CPU and the emulated device have it");
}

}  // namespace moestro
