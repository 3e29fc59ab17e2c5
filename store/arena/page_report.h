#pragma once
// Which pages an arena got, on which NUMA nodes, and what the operator can change to get better ones. No I/O.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace moestro::store {

struct PageFacts {
  enum class Kind { kTmpfs, kHugetlbfs, kNameless, kDisk };
  Kind kind = Kind::kTmpfs;
  std::string dir;         ///< of the arena's memory; nameless: empty
  std::string mount;       ///< the mount that it is on
  std::string mount_huge;  ///< word of that mount's option `huge=`; empty: none, as `never`
  std::string shmem_huge;  ///< the chosen word of shmem_enabled; empty: the kernel has no transparent huge pages
  uint64_t bytes = 0, huge_bytes = 0;
  std::string nodes;       ///< "node 0 50 %, node 1 50 %"; empty: there is one node, or unknown
  Status spread = {};      ///< why it is not on the chosen NUMA nodes
};

/// For the log, `moestro doctor` and the store's status. `mend` says what to change; empty if nothing needs to be
/// changed.
struct PageReport {
  bool huge = false;
  uint64_t huge_bytes = 0;
  std::string found, mend;
};
PageReport judge_pages(const PageFacts& facts);

}  // namespace moestro::store
