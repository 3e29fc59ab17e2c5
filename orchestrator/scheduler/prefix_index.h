#pragma once
// Which block has which contents: full blocks by the key of their place in a chain (prefix_key.h).

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "orchestrator/scheduler/prefix_key.h"

namespace moestro::orchestrator {

/// A full block's place in a chain.
struct PrefixLink {
  PrefixKey key, parent;
  std::span<const TokenId> tokens;  ///< of the block
};

class PrefixIndex {
 public:
  explicit PrefixIndex(uint32_t blocks) : contents_(blocks) {}

  /// The block with these contents, if there is one.
  std::optional<uint32_t> find(const PrefixLink& link) const;
  /// The block with this key; without a hash collision, it has these contents.
  std::optional<uint32_t> named(const PrefixKey& key) const;
  bool has(uint32_t block) const { return contents_[block].there; }
  /// The link of a block in the index. Its tokens are valid until the block is erased.
  PrefixLink link(uint32_t block) const;
  size_t size() const { return by_key_.size(); }

  /// Adds `block`. Neither it nor another block with this key may be in the index.
  void put(uint32_t block, const PrefixLink& link);
  void erase(uint32_t block);

 private:
  struct Contents {
    bool there = false;
    PrefixKey key, parent;
    std::vector<TokenId> tokens;
  };
  std::vector<Contents> contents_;
  std::unordered_map<PrefixKey, uint32_t, PrefixKeyHash> by_key_;
};

}  // namespace moestro::orchestrator
