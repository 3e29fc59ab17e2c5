#pragma once
// A process that may write a mapped file can also shorten it. A reader of the missing part then gets SIGBUS. A guarded
// mapping reads as zeros from that moment instead, and reports it.

#include <cstddef>
#include <utility>

#include "common/shm/mapped_file.h"

namespace moestro::shm {

class ShrinkGuard {
 public:
  ShrinkGuard() = default;
  /// Guards `file` while this object exists; `file` must outlive it. More than a few hundred at once are not guarded.
  explicit ShrinkGuard(const MappedFile& file);
  ShrinkGuard(ShrinkGuard&& other) noexcept : place_(std::exchange(other.place_, -1)) {}
  ShrinkGuard& operator=(ShrinkGuard&& other) noexcept {
    if (this != &other) release(), place_ = std::exchange(other.place_, -1);
    return *this;
  }
  ~ShrinkGuard() { release(); }

  /// True if a page that was read was missing: the whole mapping is private zeros now.
  bool shrunk() const;

 private:
  void release();
  int place_ = -1;  ///< in the table that the signal's handler looks at
};

}  // namespace moestro::shm
