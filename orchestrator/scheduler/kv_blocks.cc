#include "orchestrator/scheduler/kv_blocks.h"

#include "common/check.h"

namespace moestro::orchestrator {

KvBlocks::KvBlocks(uint32_t blocks, uint32_t block_tokens, uint32_t host_blocks)
    : block_tokens_(block_tokens), blocks_(blocks), index_(blocks), host_(host_blocks) {
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
    forget(taken);
  } else if (!still_written_.empty()) {
    taken = still_written_.back();
    still_written_.pop_back();
  } else {
    return std::nullopt;
  }
  MOESTRO_CHECK(blocks_[taken].holders == 0 && !index_.has(taken), "a KV block that is taken is in use");
  blocks_[taken].holders = 1;
  return taken;
}

/// Takes it out of the index; its contents stay to be found in host memory where there is room.
void KvBlocks::forget(uint32_t block) {
  if (const auto host_block = host_.keep(index_.link(block))) copies_.push_back({block, total() + *host_block});
  index_.erase(block);
}

void KvBlocks::share(uint32_t block) {
  MOESTRO_CHECK(index_.has(block), "a KV block that may still be written is shared");
  if (blocks_[block].holders++ == 0) unheld_.erase(blocks_[block].place);
}

void KvBlocks::give_back(uint32_t id) {
  MOESTRO_CHECK(id < blocks_.size() && blocks_[id].holders > 0, "a KV block is given back twice");
  Block& block = blocks_[id];
  if (--block.holders > 0) return;
  if (index_.has(id))
    block.place = unheld_.insert(unheld_.end(), id);
  else
    set_free(id);
}

void KvBlocks::written(uint32_t id) {
  Block& block = blocks_[id];
  MOESTRO_CHECK(block.writers > 0, "a KV block is written by a plan more than once");
  if (--block.writers == 0 && std::erase(still_written_, id) > 0) free_.push_back(id);
}

bool KvBlocks::publish(uint32_t block, const PrefixLink& link) {
  MOESTRO_CHECK(blocks_[block].holders > 0 && link.tokens.size() == block_tokens_,
                "a KV block that is published is held and full");
  const auto there = index_.named(link.key);
  if (!there) {
    index_.put(block, link);
    return true;
  }
  const Block& other = blocks_[*there];
  if (other.holders == 0) unheld_.splice(unheld_.end(), unheld_, other.place);
  return *there == block;
}

void KvBlocks::drop(const PrefixLink& link) {
  const auto block = find(link);
  if (!block || is_held(*block)) return;
  unheld_.erase(blocks_[*block].place);
  index_.erase(*block);
  set_free(*block);
}

void KvBlocks::bring_in(uint32_t host_block, uint32_t block, const PrefixLink& link) {
  MOESTRO_CHECK(writable(block), "a KV block that others can read is copied to");
  copies_.push_back({total() + host_block, block});
  host_.let_go(host_block);
  publish(block, link);
}

std::span<const TokenId> KvBlocks::published_tokens(uint32_t block) const {
  if (!index_.has(block)) return {};
  return index_.link(block).tokens;
}

bool KvBlocks::consistent() const {
  std::vector<int> seen(blocks_.size());
  for (const std::vector<uint32_t>* list : {&free_, &still_written_})
    for (const uint32_t id : *list) {
      if (blocks_[id].holders > 0 || index_.has(id) || is_still_written(id) != (list == &still_written_)) return false;
      ++seen[id];
    }
  for (auto it = unheld_.begin(); it != unheld_.end(); ++it) {
    if (blocks_[*it].holders > 0 || !index_.has(*it) || blocks_[*it].place != it) return false;
    ++seen[*it];
  }
  size_t published = 0;
  for (uint32_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (seen[id] != (block.holders == 0 ? 1 : 0) || (block.holders > 1 && !index_.has(id))) return false;
    if (!index_.has(id)) continue;
    ++published;
    if (index_.named(index_.link(id).key) != id) return false;
  }
  return published == index_.size() && host_.consistent();
}

}  // namespace moestro::orchestrator
