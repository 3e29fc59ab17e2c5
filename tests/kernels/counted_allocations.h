#pragma once
// Counts what a test program allocates on the heap. Replaces operator new: include it in one source of a program.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace moestro::test {

inline std::atomic<int64_t> allocations{0};

inline void* counted_allocation(size_t size, size_t align) {
  allocations.fetch_add(1);
  if (void* p = std::aligned_alloc(align, (size + align - 1) / align * align)) return p;
  throw std::bad_alloc();
}

}  // namespace moestro::test

void* operator new(size_t size) {
  return moestro::test::counted_allocation(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t align) {
  return moestro::test::counted_allocation(size, static_cast<size_t>(align));
}
// Not inlined, or the compiler sees free() of what new gave and takes them for a mismatch.
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
