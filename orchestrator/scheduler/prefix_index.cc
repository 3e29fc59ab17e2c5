#include "orchestrator/scheduler/prefix_index.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::orchestrator {

std::optional<uint32_t> PrefixIndex::named(const PrefixKey& key) const {
  const auto it = by_key_.find(key);
  return it == by_key_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<uint32_t> PrefixIndex::find(const PrefixLink& wanted) const {
  const auto block = named(wanted.key);
  if (!block) return std::nullopt;
  const Contents& c = contents_[*block];
  return c.parent == wanted.parent && std::ranges::equal(c.tokens, wanted.tokens) ? block : std::nullopt;
}

PrefixLink PrefixIndex::link(uint32_t block) const {
  const Contents& c = contents_[block];
  return {c.key, c.parent, c.tokens};
}

void PrefixIndex::put(uint32_t block, const PrefixLink& link) {
  Contents& c = contents_[block];
  MOESTRO_CHECK(!c.there && by_key_.try_emplace(link.key, block).second,
                "contents are in the index of KV blocks twice");
  c.there = true;
  c.key = link.key;
  c.parent = link.parent;
  c.tokens.assign(link.tokens.begin(), link.tokens.end());
}

void PrefixIndex::erase(uint32_t block) {
  Contents& c = contents_[block];
  MOESTRO_CHECK(c.there && by_key_.erase(c.key) == 1,
                "contents that are not in the index of KV blocks are taken out of it");
  c.there = false;
}

}  // namespace moestro::orchestrator
