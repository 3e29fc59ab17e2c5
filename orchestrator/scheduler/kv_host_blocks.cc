#include "orchestrator/scheduler/kv_host_blocks.h"

#include "common/check.h"

namespace moestro::orchestrator {

KvHostBlocks::KvHostBlocks(uint32_t blocks) : blocks_(blocks), index_(blocks) {
  free_.reserve(blocks);
  for (uint32_t b = blocks; b > 0; --b) free_.push_back(b - 1);  // lowest ids first
}

std::optional<uint32_t> KvHostBlocks::keep(const PrefixLink& link) {
  if (const auto there = index_.named(link.key)) {
    if (!blocks_[*there].held) used_.splice(used_.end(), used_, blocks_[*there].place);
    return std::nullopt;
  }
  uint32_t block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (!used_.empty()) {
    block = used_.front();
    used_.pop_front();
    index_.erase(block);
  } else {
    return std::nullopt;
  }
  index_.put(block, link);
  blocks_[block].place = used_.insert(used_.end(), block);
  return block;
}

void KvHostBlocks::hold(uint32_t block) {
  MOESTRO_CHECK(index_.has(block) && !blocks_[block].held,
                "a KV block in host memory is held that is not there, or twice");
  blocks_[block].held = true;
  used_.erase(blocks_[block].place);
}

void KvHostBlocks::let_go(uint32_t block) {
  MOESTRO_CHECK(blocks_[block].held, "a KV block in host memory is let go of that nobody holds");
  blocks_[block].held = false;
  blocks_[block].place = used_.insert(used_.end(), block);
}

bool KvHostBlocks::consistent() const {
  std::vector<int> seen(blocks_.size());
  for (const uint32_t b : free_) {
    if (index_.has(b)) return false;
    ++seen[b];
  }
  for (auto it = used_.begin(); it != used_.end(); ++it) {
    if (!index_.has(*it) || blocks_[*it].held || blocks_[*it].place != it) return false;
    ++seen[*it];
  }
  for (uint32_t b = 0; b < blocks_.size(); ++b)
    if (seen[b] != 1 || blocks_[b].held) return false;  // nothing stays held between two events
  return free_.size() + index_.size() == blocks_.size();
}

}  // namespace moestro::orchestrator
