#pragma once
// The cards of the emulated plugin, and their faults. Read from the environment at the first use.

#include <cstdint>
#include <string>
#include <vector>

namespace moestro::test {

struct EmulatedCard {
  std::string name;
  int major = 0, minor = 0;
  uint64_t total_bytes = 0;
  uint64_t taken_bytes = 0;  ///< by other processes
  std::string pci;
};

struct EmulatedCuda {
  /// MOESTRO_EMULATED_CUDA_DEVICES="NAME,9.0,TOTAL[,TAKEN[,PCI]];..."; not set: one card of 8 GiB; empty: none.
  std::vector<EmulatedCard> cards;
  // MOESTRO_EMULATED_CUDA_FAULTS, some of these with commas between:
  bool no_driver = false;         ///< no-driver: as where there is none, or one too old
  bool refuse_register = false;   ///< refuse-register: host memory cannot be registered
  std::vector<size_t> faulty;     ///< faulty-card=INDEX: every call on that card fails
  uint64_t slow_copies_ms =
      0;  ///< slow-copies=MS: copies, and all else between two events, seem to take so long at least
  std::string
      falls_after;  ///< fall-off=FUNCTION:N: when FUNCTION has been called N times every call fails from then on
  uint64_t falls_at = 0;
  /// MOESTRO_EMULATED_CUDA_FALLEN=FILE: every call fails once that file is there.
  std::string fallen_file;
};

/// Ends the process with a line on stderr if a setting is invalid, because the test is wrong.
const EmulatedCuda& emulated_cuda();

}  // namespace moestro::test
