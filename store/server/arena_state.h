#pragma once
// The machine's view of shared memory, over the real files.

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
  bool pinned(uint32_t entry) const override;
  UseNote uses(uint32_t entry) const override;
  uint64_t uses_of_all() const override;
  uint64_t stamp_now() const override;
  void set_share(uint32_t slot, uint64_t bytes) override;

 private:
  ArenaFiles& files_;
  mutable std::array<uint64_t, kWorkerSlotsMax> counted_{};  ///< each slot's total when it was last read
  mutable uint64_t uses_ = 0;
};

}  // namespace moestro::store
