#pragma once
// Which table entries hold the same bytes. The entry that was read first keeps them. Every later entry with equal
// content becomes its alias permanently. Any of them whose pack is still served can be read in place of the first.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "store/layout/content_hash.h"

namespace moestro::store {

class ContentIndex {
 public:
  /// Adds entries; each is separate at first.
  void resize(size_t entries) { items_.resize(entries); }

  /// `entry` was read completely and has the content `key`. Returns the entry with the same content that it becomes an
  /// alias of. nullopt: it is the first. Unknown content is equal to nothing.
  std::optional<uint32_t> learn(uint32_t entry, const ContentKey& key);
  /// Whether the content of `entry` is already known and differs from `key`.
  bool contradicts(uint32_t entry, const ContentKey& key) const;

  /// The entry that holds its bytes: itself, unless it is an alias.
  uint32_t resolve(uint32_t entry) const { return items_[entry].first.value_or(entry); }
  /// The content of a first entry; nullopt until it has been read.
  const std::optional<ContentKey>& key(uint32_t first) const { return items_[first].key; }
  bool is_alias(uint32_t entry) const { return items_[entry].first.has_value(); }
  /// A first entry and its aliases: all entries that can be read for it.
  std::vector<uint32_t> holders(uint32_t first) const;
  /// Number of entries that are aliases.
  size_t aliases() const { return aliases_; }

  /// Removes what is known of `entry`. An entry with aliases cannot be forgotten.
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
