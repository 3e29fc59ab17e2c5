#pragma once
// Shared memory as the machine sees it.

#include <cstdint>

#include "store/layout/content_hash.h"
#include "store/layout/table_layout.h"

namespace moestro::store {

/// An entry's pin words, over all workers.
struct UseNote {
  uint64_t stamp = 0;       ///< the newest
  uint32_t sixteenths = 0;  ///< sum of their counts, modulo PinWord::kUsesMask + 1
};

/// All of it is sequentially consistent with the workers' pin words.
class SharedState {
 public:
  virtual ~SharedState() = default;
  virtual void set_word(uint32_t entry, Residency state, uint64_t generation) = 0;
  virtual void set_place(uint32_t entry, uint64_t offset, const ContentHash& content) = 0;
  /// `entry` holds what `first` holds. Comes before the word that says so.
  virtual void set_alias(uint32_t entry, uint32_t first) = 0;
  virtual void clear_alias(uint32_t entry) = 0;
  virtual void set_length(uint32_t entry, uint64_t bytes) = 0;
  /// The bytes of `entry` are wrong, and its word does not say RESIDENT any more: whoever has them in use is told.
  virtual void note_wrong(uint32_t entry) = 0;
  /// Whether any worker's word for this entry says pinned.
  virtual bool pinned(uint32_t entry) const = 0;
  virtual UseNote uses(uint32_t entry) const = 0;
  /// Of all experts by all workers, those that have gone too; in sixteenths.
  virtual uint64_t uses_of_all() const = 0;
  virtual uint64_t stamp_now() const = 0;
  virtual void set_share(uint32_t slot, uint64_t bytes) = 0;
  /// What each pinned expert counts of a share, if that is more than its length.
  virtual void set_pin_bytes_min(uint64_t bytes) = 0;
};

}  // namespace moestro::store
