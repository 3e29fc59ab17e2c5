#pragma once
// The machine's interface to shared memory.

#include <cstdint>

#include "store/layout/content_hash.h"
#include "store/layout/table_layout.h"

namespace moestro::store {

/// An entry's pin words, summed over all workers.
struct UseNote {
  uint64_t stamp = 0;       ///< the newest
  uint32_t sixteenths = 0;  ///< sum of their counts, modulo PinWord::kUsesMask + 1
};

/// All operations are sequentially consistent with the workers' pin words.
class SharedState {
 public:
  virtual ~SharedState() = default;
  virtual void set_word(uint32_t entry, Residency state, uint64_t generation) = 0;
  virtual void set_place(uint32_t entry, uint64_t offset, const ContentHash& content) = 0;
  /// `entry` has the content of `first`. Called before the word that says kAlias.
  virtual void set_alias(uint32_t entry, uint32_t first) = 0;
  virtual void clear_alias(uint32_t entry) = 0;
  virtual void set_length(uint32_t entry, uint64_t bytes) = 0;
  /// The bytes of `entry` are wrong, and its word no longer says RESIDENT. Workers that use them are told.
  virtual void note_wrong(uint32_t entry) = 0;
  /// Whether any worker's word for this entry says pinned.
  virtual bool pinned(uint32_t entry) const = 0;
  virtual UseNote uses(uint32_t entry) const = 0;
  /// Uses of all experts by all workers, including those that are gone, in sixteenths.
  virtual uint64_t uses_of_all() const = 0;
  virtual uint64_t stamp_now() const = 0;
  virtual void set_share(uint32_t slot, uint64_t bytes) = 0;
  /// Streamed blobs that the worker in this slot may pin at once.
  virtual void set_window_share(uint32_t slot, uint32_t places) = 0;
  /// What each pinned expert counts at least in a share.
  virtual void set_pin_bytes_min(uint64_t bytes) = 0;
};

}  // namespace moestro::store
