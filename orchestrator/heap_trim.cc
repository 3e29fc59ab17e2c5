#include "orchestrator/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>

namespace moestro::orchestrator {

namespace {

/// Larger pieces are mapped one by one and go back when they are freed. Without a fixed bound the first large body that
/// is freed would raise it to that body's size, for good.
constexpr int kMappedBytes = 256 << 10;
constexpr size_t kKeptBytes = 2 << 20;
constexpr size_t kChangeBytes = 2 << 20;
constexpr std::chrono::seconds kLookEvery{5};

/// 0 if the system does not say.
size_t process_resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

bool changed(size_t before, size_t now) { return now >= before + kChangeBytes || before >= now + kChangeBytes; }

}  // namespace

HeapTrim::HeapTrim()
    : ticker_(kLookEvery, [free_before = size_t{0}, resident_before = size_t{0}]() mutable {
        const size_t free = mallinfo2().fordblks;
        if (free <= kKeptBytes) return;
        // What was given back still counts as free, also after it was used and freed once more. So another try is
        // worthwhile only if one of the two figures has changed since the last one.
        if (!changed(free_before, free) && process_resident_bytes() < resident_before + kChangeBytes) return;
        malloc_trim(0);
        free_before = free;
        resident_before = process_resident_bytes();
      }) {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
}

}  // namespace moestro::orchestrator
