#pragma once
// How much memory this process may still take: what the machine has free, and what every cgroup above it leaves.

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
      0;  ///< without the clean page cache, which the kernel gives back when memory is wanted; shared memory counts
  bool alone = false;        ///< no other process is in it or below it
  uint64_t left_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

struct MemoryBound {
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;  ///< of the machine or the group that makes it so
  std::string whose;         ///< "this machine", "cgroup /docker/4f2a"
};

/// A size of huge pages, and those of it that the operator has set aside (hugetlbfs).
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

  /// What can still be taken: the least of what machine and groups leave, when other processes will take `others`
  /// beside it. Those are in this process's groups too, but for one that it has alone, as a container does.
  MemoryBound left(uint64_t others = 0) const;
  /// The least of the machine's memory and the groups' limits, likewise.
  MemoryBound limit(uint64_t others = 0) const;
};

/// `root`: "/", or a folder of fixtures.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

}  // namespace moestro::machine
