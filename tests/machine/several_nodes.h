#pragma once
// For tests that only a machine of several NUMA nodes can run. scripts/test_numa makes one.

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/machine/numa.h"

namespace moestro::testing {

/// Why memory cannot be put on one node or another here; empty: it can. ctest looks for these words.
inline std::string why_no_nodes() {
  const std::string reason = "no NUMA nodes to choose from: ";
  if (machine::memory_nodes().size() < 2) return reason + "one has all memory";
  if (::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) != 0)
    return reason + "set_mempolicy: " + std::strerror(errno);
  return {};
}

}  // namespace moestro::testing
