#pragma once
// SharedState of the machine, on the real files.

#include "store/arena/arena_files.h"
#include "store/machine/store_machine.h"

namespace moestro::store {

class ArenaState final : public SharedState {
 public:
  explicit ArenaState(ArenaFiles& files) : files_(files) {}
  void set_word(uint32_t entry, Residency state, uint64_t generation) override;
  void set_place(uint32_t entry, uint64_t offset, const ContentHash& content) override;
  void set_alias(uint32_t entry, uint32_t first) override;
  void clear_alias(uint32_t entry) override;
  void set_length(uint32_t entry, uint64_t bytes) override;
  void note_wrong(uint32_t entry) override;
  bool pinned(uint32_t entry) const override;
  UseNote uses(uint32_t entry) const override;
  uint64_t uses_of_all() const override;
  uint64_t stamp_now() const override;
  void set_share(uint32_t slot, uint64_t bytes) override;
  void set_window_share(uint32_t slot, uint32_t places) override;
  void set_pin_bytes_min(uint64_t bytes) override;
  /// Experts that workers, gone ones too, found resident, and did not, as they have counted so far.
  uint64_t hits_of_all() const;
  uint64_t misses_of_all() const;

 private:
  /// The sum of a count in the header of each slot, over all holders so far.
  struct Total {
    std::array<uint64_t, kWorkerSlotsMax> counted{};  ///< each slot's count when it was last read
    uint64_t sum = 0;
  };
  uint64_t add_up(Total& total, std::atomic<uint64_t> PinsHeader::*count) const;

  ArenaFiles& files_;
  mutable Total uses_, hits_, misses_;
};

}  // namespace moestro::store
