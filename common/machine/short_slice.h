#pragma once
// How soon a thread runs when what it waits for is there, on cores that others keep busy.

#include <cstdint>
#include <optional>

namespace moestro::machine {

/// While it lives, the scheduler is asked for short slices for this thread and for those that it starts: woken, they run at once, though whoever has the
/// core has not had its own slice yet (3 ms and more); the share of time that each thread gets is what it was. For threads that pass on messages and what a
/// drive has read, beside those that compute. Needs no privilege. Linux before 6.12 knows no such slices, and nothing changes; neither does a
/// thread with a policy of its own (a real-time one, say).
class ShortSlice {
 public:
  ShortSlice();
  ~ShortSlice();
  ShortSlice(const ShortSlice&) = delete;
  ShortSlice& operator=(const ShortSlice&) = delete;

 private:
  std::optional<uint64_t> former_ns_;  ///< none: it was not changed
};

/// Of this thread, as the scheduler has it; 0 where it does not tell.
uint64_t slice_ns();

}  // namespace moestro::machine
