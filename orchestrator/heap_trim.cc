#include "orchestrator/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>

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

HeapTrim::HeapTrim() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  thread_ = std::jthread(&HeapTrim::loop);
}

void HeapTrim::loop(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  size_t free_before = 0, resident_before = 0;
  while (!wake.wait_for(lock, stop, kLookEvery, [] { return false; }) && !stop.stop_requested()) {
    const size_t free = mallinfo2().fordblks;
    if (free <= kKeptBytes) continue;
    // What was given back still counts as free, also after it was used and freed once more: a try is worthwhile if
    // either figure has changed since the last one.
    if (!changed(free_before, free) && process_resident_bytes() < resident_before + kChangeBytes) continue;
    malloc_trim(0);
    free_before = free;
    resident_before = process_resident_bytes();
  }
}

}  // namespace moestro::orchestrator
