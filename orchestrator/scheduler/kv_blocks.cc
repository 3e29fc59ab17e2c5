#include "orchestrator/scheduler/kv_blocks.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::orchestrator {

KvBlocks::KvBlocks(uint32_t blocks, uint32_t block_tokens) : block_tokens_(block_tokens), blocks_(blocks) {
  MOESTRO_CHECK(block_tokens > 0, "a KV block holds tokens");
  free_.reserve(blocks);
  for (uint32_t b = blocks; b > 0; --b) free_.push_back(b - 1);  // lowest ids first
}

std::optional<uint32_t> KvBlocks::take() {
  uint32_t taken;
  if (!free_.empty()) {
    taken = free_.back();
    free_.pop_back();
  } else if (!unheld_.empty()) {
    taken = unheld_.front();
    unheld_.pop_front();
    forget(blocks_[taken]);
  } else {
    return std::nullopt;
  }
  MOESTRO_CHECK(blocks_[taken].holders == 0 && !blocks_[taken].published, "a KV block that is taken is in use");
  blocks_[taken].holders = 1;
  return taken;
}

std::optional<uint32_t> KvBlocks::find(const PrefixLink& link) const {
  const auto it = index_.find(link.key);
  if (it == index_.end()) return std::nullopt;
  const Block& block = blocks_[it->second];
  if (block.parent != link.parent || !std::equal(block.tokens.begin(), block.tokens.end(), link.tokens.begin(), link.tokens.end()))
    return std::nullopt;  // a collision
  return it->second;
}

void KvBlocks::share(uint32_t id) {
  Block& block = blocks_[id];
  MOESTRO_CHECK(block.published, "a KV block that may still be written is shared");
  if (block.holders++ == 0) unheld_.erase(block.place);
}

void KvBlocks::give_back(uint32_t id) {
  MOESTRO_CHECK(id < blocks_.size() && blocks_[id].holders > 0, "a KV block is given back twice");
  Block& block = blocks_[id];
  if (--block.holders > 0) return;
  if (block.published)
    block.place = unheld_.insert(unheld_.end(), id);
  else
    free_.push_back(id);
}

void KvBlocks::publish(uint32_t id, const PrefixLink& link) {
  Block& block = blocks_[id];
  MOESTRO_CHECK(block.holders > 0 && link.tokens.size() == block_tokens_, "a KV block that is published is held and full");
  const auto [it, fresh] = index_.try_emplace(link.key, id);
  if (!fresh) {
    Block& other = blocks_[it->second];
    if (other.holders == 0) unheld_.splice(unheld_.end(), unheld_, other.place);
    return;
  }
  MOESTRO_CHECK(!block.published, "a published KV block has changed");
  block.published = true;
  block.key = link.key;
  block.parent = link.parent;
  block.tokens.assign(link.tokens.begin(), link.tokens.end());
}

void KvBlocks::forget(Block& block) {
  index_.erase(block.key);
  block.published = false;
}

std::span<const TokenId> KvBlocks::published_tokens(uint32_t id) const {
  if (!blocks_[id].published) return {};
  return blocks_[id].tokens;
}

bool KvBlocks::consistent() const {
  std::vector<int> seen(blocks_.size());
  for (const uint32_t id : free_) {
    if (blocks_[id].holders > 0 || blocks_[id].published) return false;
    ++seen[id];
  }
  for (auto it = unheld_.begin(); it != unheld_.end(); ++it) {
    if (blocks_[*it].holders > 0 || !blocks_[*it].published || blocks_[*it].place != it) return false;
    ++seen[*it];
  }
  size_t published = 0;
  for (uint32_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (seen[id] != (block.holders == 0 ? 1 : 0) || (block.holders > 1 && !block.published)) return false;
    if (!block.published) continue;
    ++published;
    const auto it = index_.find(block.key);
    if (it == index_.end() || it->second != id) return false;
  }
  return published == index_.size();
}

}  // namespace moestro::orchestrator
