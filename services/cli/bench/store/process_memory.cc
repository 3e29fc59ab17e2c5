#include "services/cli/bench/store/process_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace moestro::cli {
namespace {

/// Of the mappings of one kind, in KiB. Huge pages that several processes share are named in each of them.
struct Kind {
  uint64_t pss = 0, shared_huge = 0;
  void add(const std::string& line) {
    unsigned long n = 0;
    if (std::sscanf(line.c_str(), "Pss: %lu", &n) == 1 || std::sscanf(line.c_str(), "Private_Hugetlb: %lu", &n) == 1)
      pss += n;
    if (std::sscanf(line.c_str(), "Shared_Hugetlb: %lu", &n) == 1) shared_huge += n;
  }
};

/// "7f12a000-7f12b000 r--s 00000000 00:1f 42    /path": begins a mapping.
bool begins_mapping(const std::string& line) {
  unsigned long begin = 0, end = 0;
  return std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2;
}

}  // namespace

Result<ProcessMemory> memory_of(std::span<const pid_t> processes, const std::filesystem::path& arena_file) {
  const std::string arena_ending = " " + arena_file.string();
  uint64_t arena = 0, rest = 0, arena_huge = 0, rest_huge = 0;
  for (const pid_t pid : processes) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/smaps");
    Kind of_arena, of_rest, *now = nullptr;
    for (std::string line; std::getline(in, line);) {
      if (begins_mapping(line)) now = line.ends_with(arena_ending) ? &of_arena : &of_rest;
      else if (now != nullptr) now->add(line);
    }
    if (now == nullptr) return unavailable("/proc/" + std::to_string(pid) + "/smaps cannot be read");
    arena += of_arena.pss, rest += of_rest.pss;
    arena_huge = std::max(arena_huge, of_arena.shared_huge), rest_huge = std::max(rest_huge, of_rest.shared_huge);
  }
  return ProcessMemory{(arena + arena_huge) << 10, (rest + rest_huge) << 10};
}

}  // namespace moestro::cli
