#pragma once
// How urgent a read is. A class is served only while no higher class has anything to read. Reads in flight are never
// cancelled.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

enum class ReadClass : uint8_t {
  kDemand = 0,    ///< a worker waits for it
  kPrefetch = 1,  ///< a worker expects to need it
  kScrub = 2,     ///< for the store itself: blobs damaged in memory, and blobs that were hot before it started
};
inline constexpr size_t kReadClasses = 3;

}  // namespace moestro::store
