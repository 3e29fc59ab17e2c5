#pragma once
// Which table entries hold the same bytes. The entry that was read first keeps them; every later one with equal content
// is its alias for good, and any of them that a pack still serves can be read in its stead.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "store/layout/content_hash.h"

namespace moestro::store {

class ContentIndex {
 public:
  /// Entries are known from here on, each standing for itself.
  void resize(size_t entries) { items_.resize(entries); }

  /// `entry` was read whole and holds `key`. Another entry that has the same content, which it becomes an alias of;
  /// else none: it is the first, now or already. Content that is not known equals nothing.
  std::optional<uint32_t> learn(uint32_t entry, const ContentKey& key);
  /// As learn() would, but only for an entry whose content is known already: whether `key` is what it was.
  bool contradicts(uint32_t entry, const ContentKey& key) const;

  /// The entry that holds its bytes: itself unless it is an alias.
  uint32_t resolve(uint32_t entry) const { return items_[entry].first.value_or(entry); }
  /// Of a first entry; none until it has been read.
  const std::optional<ContentKey>& key(uint32_t first) const { return items_[first].key; }
  bool is_alias(uint32_t entry) const { return items_[entry].first.has_value(); }
  /// A first entry and its aliases: all that can be read for it.
  std::vector<uint32_t> holders(uint32_t first) const;
  /// Entries that hold their bytes through another one.
  size_t aliases() const { return aliases_; }

  /// `entry` means nothing any more; an entry that others are aliases of cannot be forgotten.
  void forget(uint32_t entry);

 private:
  struct Item {
    std::optional<uint32_t> first;  ///< an alias of it
    std::optional<ContentKey> key;  ///< of a first entry that has been read
    std::vector<uint32_t> copies;   ///< aliases of this one
  };
  std::vector<Item> items_;
  std::map<ContentKey, uint32_t> first_of_;
  size_t aliases_ = 0;
};

}  // namespace moestro::store
