#include "orchestrator/heap_trim.h"

#include <malloc.h>

#include <cstddef>

namespace moestro::orchestrator {

namespace {

/// Larger pieces are mapped one by one and go back when they are freed. Without a fixed bound the first large body that
/// is freed would raise it to that body's size, for good.
constexpr int kMappedBytes = 256 << 10;
constexpr size_t kKeptBytes = 2 << 20;

}  // namespace

// What was given back still counts as free, and the process's resident bytes also have what is mapped, so neither tells
// whether there is anything to give. Trying costs little beside the interval: 0.7 ms for 256 MB that were freed in
// pieces of 200 kB and have gone already, 23 ms for as much in pieces of 8 kB.
HeapTrim::HeapTrim(std::chrono::milliseconds every)
    : ticker_(every, [] {
        if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
      }) {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
}

}  // namespace moestro::orchestrator
