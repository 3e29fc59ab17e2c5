#pragma once
// The KV blocks of a worker in host memory, in addition to its device's: copies of cached full blocks, made when the
// device's block is reused, and copied back when a sequence begins with them again.
//
// A copy stays after it has been copied back: if the device's block is evicted again, nothing has to be moved. The
// least recently used copy is evicted.

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "orchestrator/scheduler/prefix_index.h"

namespace moestro::orchestrator {

class KvHostBlocks {
 public:
  explicit KvHostBlocks(uint32_t blocks);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t used() const { return static_cast<uint32_t>(index_.size()); }
  std::optional<uint32_t> find(const PrefixLink& link) const { return index_.find(link); }

  /// A block to copy these contents to. nullopt: a copy exists already, or every block is held.
  std::optional<uint32_t> keep(const PrefixLink& link);
  /// A block from find() is not evicted until it is released. Not nested.
  void hold(uint32_t block);
  void let_go(uint32_t block);

  /// For tests: whether every block is in exactly one state, and the index and the lists agree.
  bool consistent() const;

 private:
  struct Block {
    bool held = false;
    std::list<uint32_t>::iterator place;  ///< in used_, unless it is held
  };
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
  std::list<uint32_t> used_;  ///< least recently used first
  PrefixIndex index_;
};

}  // namespace moestro::orchestrator
