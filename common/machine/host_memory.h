#pragma once
// How much memory this process may still take: what is free on the machine, and what every cgroup above it leaves.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace moestro::machine {

/// A cgroup with a limit, v1 or v2.
struct MemoryGroup {
  std::string name;          ///< "/docker/4f2a": as this process sees it
  uint64_t limit_bytes = 0;  ///< v2: the lower of memory.max and memory.high
  uint64_t used_bytes =
      0;  ///< without the clean page cache, which the kernel frees on demand; shared memory counts
  bool alone = false;        ///< no other process is in it or below it
  uint64_t left_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

struct MemoryBound {
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;  ///< of the machine or the group that sets the bound
  std::string whose;         ///< "this machine", "cgroup /docker/4f2a"
};

/// A size of huge pages, and the number of such pages that the operator has reserved (hugetlbfs).
struct HugePool {
  uint64_t page_bytes = 0;
  uint64_t pages = 0;
  uint64_t free_pages = 0;  ///< neither used nor promised
};

struct HostMemory {
  uint64_t total_bytes = 0, available_bytes = 0;
  std::vector<MemoryGroup> groups;  ///< innermost first; those whose limit is below the machine's memory
  std::vector<HugePool> huge;
  std::string shmem_huge;           ///< the chosen word of shmem_enabled: "never"; empty: no transparent huge pages

  /// What can still be taken: the least that the machine and the groups leave if other processes take `others` in
  /// addition. Those are counted in this process's groups too, except in a group that has no other process, such as a
  /// container's.
  MemoryBound left(uint64_t others = 0) const;
  /// The least of the machine's memory and the groups' limits, in the same way.
  MemoryBound limit(uint64_t others = 0) const;
};

/// `root`: "/", or a folder of fixtures.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

}  // namespace moestro::machine
