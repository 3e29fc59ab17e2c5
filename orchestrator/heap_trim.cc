#include "orchestrator/heap_trim.h"

#include <malloc.h>

#include <chrono>
#include <cstddef>

namespace moestro::orchestrator {

namespace {

/// Larger pieces are mapped one by one and go back when they are freed. Without a fixed bound the first large body that
/// is freed would raise it to that body's size, for good.
constexpr int kMappedBytes = 256 << 10;
constexpr size_t kKeptBytes = 2 << 20;
/// What was given back still counts as free: only a change is worth another try.
constexpr size_t kChangeBytes = 2 << 20;
constexpr std::chrono::seconds kLookEvery{5};

}  // namespace

HeapTrim::HeapTrim()
    : ticker_(kLookEvery, [before = size_t{0}]() mutable {
        const size_t free = mallinfo2().fordblks;
        if (free <= kKeptBytes || (free < before + kChangeBytes && before < free + kChangeBytes)) return;
        malloc_trim(0);
        before = free;
      }) {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
}

}  // namespace moestro::orchestrator
