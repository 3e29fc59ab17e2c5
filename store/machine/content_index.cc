#include "store/machine/content_index.h"

#include <utility>

#include "common/check.h"

namespace moestro::store {

std::optional<uint32_t> ContentIndex::learn(uint32_t entry, const ContentKey& key) {
  Item& item = items_[entry];
  if (!key.hash.known() || item.key || item.first) return std::nullopt;
  const auto [known, is_new] = first_of_.emplace(key, entry);
  if (is_new) {
    item.key = key;
    return std::nullopt;
  }
  item.first = known->second;
  items_[known->second].copies.push_back(entry);
  ++aliases_;
  return known->second;
}

bool ContentIndex::contradicts(uint32_t entry, const ContentKey& key) const {
  return key.hash.known() && items_[entry].key && *items_[entry].key != key;
}

std::vector<uint32_t> ContentIndex::holders(uint32_t first) const {
  std::vector<uint32_t> all{first};
  all.insert(all.end(), items_[first].copies.begin(), items_[first].copies.end());
  return all;
}

void ContentIndex::forget(uint32_t entry) {
  Item& item = items_[entry];
  MOESTRO_CHECK(item.copies.empty(), "entries would be aliases of nothing");
  if (item.first) std::erase(items_[*item.first].copies, entry), --aliases_;
  if (item.key) first_of_.erase(*item.key);
  item = Item{};
}

}  // namespace moestro::store
