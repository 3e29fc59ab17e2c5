#include "orchestrator/scheduler/kv_blocks.h"

#include "common/check.h"

namespace moestro::orchestrator {

KvBlocks::KvBlocks(uint32_t blocks, uint32_t block_tokens) : total_(blocks), block_tokens_(block_tokens), held_(blocks) {
  MOESTRO_CHECK(block_tokens > 0, "a KV block holds tokens");
  free_.reserve(blocks);
  for (uint32_t b = blocks; b > 0; --b) free_.push_back(b - 1);  // lowest ids first
}

bool KvBlocks::grow(std::vector<uint32_t>& table, int64_t tokens) {
  const uint32_t want = needed(tokens);
  if (want <= table.size()) return true;
  if (want - table.size() > free_.size()) return false;
  while (table.size() < want) {
    const uint32_t block = free_.back();
    free_.pop_back();
    MOESTRO_CHECK(!held_[block], "a free KV block is held");
    held_[block] = true;
    table.push_back(block);
  }
  return true;
}

void KvBlocks::release(std::vector<uint32_t>& table) {
  for (uint32_t block : table) {
    MOESTRO_CHECK(block < total_ && held_[block], "a KV block is given back twice");
    held_[block] = false;
    free_.push_back(block);
  }
  table.clear();
}

}  // namespace moestro::orchestrator
