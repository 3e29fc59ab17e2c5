#pragma once
// The KV block ids of one worker: which are free, and who holds the others.

#include <cstdint>
#include <vector>

namespace moestro::orchestrator {

class KvBlocks {
 public:
  KvBlocks(uint32_t blocks, uint32_t block_tokens);

  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t total() const { return total_; }
  uint32_t needed(int64_t tokens) const { return static_cast<uint32_t>((tokens + block_tokens_ - 1) / block_tokens_); }

  /// Appends blocks to `table` until it covers `tokens`; takes nothing and returns false if there are too few.
  bool grow(std::vector<uint32_t>& table, int64_t tokens);
  /// Gives all blocks of `table` back and empties it. A block that is not held is a bug.
  void release(std::vector<uint32_t>& table);

 private:
  uint32_t total_, block_tokens_;
  std::vector<uint32_t> free_;
  std::vector<bool> held_;
};

}  // namespace moestro::orchestrator
