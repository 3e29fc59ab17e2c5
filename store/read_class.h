#pragma once
// How urgent a read is. A class is served only while none above it has anything to read; what is under way is never
// taken back.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

enum class ReadClass : uint8_t {
  kDemand = 0,    ///< a worker waits for it
  kPrefetch = 1,  ///< a worker thinks that it will
  kScrub = 2,     ///< for the store itself: what has gone wrong in memory, and what was hot before it started
};
inline constexpr size_t kReadClasses = 3;

}  // namespace moestro::store
