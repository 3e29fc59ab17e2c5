#pragma once
// A mapped file that someone else may write can also be cut short by them; whoever then reads what is gone gets SIGBUS.
// A guarded mapping reads as zeros instead from that moment on, and says so.

#include <cstddef>
#include <utility>

#include "common/shm/mapped_file.h"

namespace moestro::shm {

class ShrinkGuard {
 public:
  ShrinkGuard() = default;
  /// For as long as this lives; `file` lives longer. More than a few hundred at once are not guarded.
  explicit ShrinkGuard(const MappedFile& file);
  ShrinkGuard(ShrinkGuard&& other) noexcept : place_(std::exchange(other.place_, -1)) {}
  ShrinkGuard& operator=(ShrinkGuard&& other) noexcept {
    if (this != &other) release(), place_ = std::exchange(other.place_, -1);
    return *this;
  }
  ~ShrinkGuard() { release(); }

  /// A page that was read was gone: the whole mapping is private zeros now.
  bool shrunk() const;

 private:
  void release();
  int place_ = -1;  ///< in the table that the signal's handler looks at
};

}  // namespace moestro::shm
