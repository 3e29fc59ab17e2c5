#pragma once
// The shared memory of a store and its one worker, as plain variables.

#include <cstdint>
#include <vector>

#include "store/layout/pins_layout.h"
#include "store/machine/shared_state.h"

namespace moestro::store {

class VirtualMemory final : public SharedState {
 public:
  static constexpr uint32_t kSlot = 0;  ///< the worker's

  explicit VirtualMemory(size_t entries) : states_(entries), pinned_(entries), notes_(entries) {}

  // The store's.

  void set_word(uint32_t entry, Residency state, uint64_t) override { states_[entry] = state; }
  void set_place(uint32_t, uint64_t, const ContentHash&) override {}
  void set_alias(uint32_t, uint32_t) override {}
  void clear_alias(uint32_t) override {}
  void set_length(uint32_t, uint64_t) override {}
  void note_wrong(uint32_t) override {}
  bool pinned(uint32_t entry) const override { return pinned_[entry] != 0; }
  UseNote uses(uint32_t entry) const override { return notes_[entry]; }
  uint64_t uses_of_all() const override { return uses_; }
  uint64_t stamp_now() const override { return ++stamp_; }
  void set_share(uint32_t slot, uint64_t bytes) override {
    if (slot == kSlot) share_ = bytes;
  }
  void set_window_share(uint32_t, uint32_t) override {}
  void set_pin_bytes_min(uint64_t bytes) override { pin_bytes_min_ = bytes; }

  // The worker's.

  Residency state(uint32_t entry) const { return states_[entry]; }
  /// One more use, of so many sixteenths (UseWeight). A whole one has a stamp.
  void pin(uint32_t entry, uint32_t sixteenths, bool whole) {
    pinned_[entry] = 1;
    UseNote& note = notes_[entry];
    note.sixteenths = (note.sixteenths + sixteenths) & PinWord::kUsesMask;
    if (whole) note.stamp = ++stamp_;
    uses_ += sixteenths;
  }
  void unpin(uint32_t entry) { pinned_[entry] = 0; }
  uint64_t share_bytes() const { return share_; }
  uint64_t pin_bytes_min() const { return pin_bytes_min_; }

 private:
  std::vector<Residency> states_;
  std::vector<uint8_t> pinned_;
  std::vector<UseNote> notes_;
  uint64_t uses_ = 0, share_ = 0, pin_bytes_min_ = 0;
  mutable uint64_t stamp_ = 0;
};

}  // namespace moestro::store
