#pragma once
// What of a worker's KV blocks lies in host memory, beside a device that has its own: copies of full blocks that were
// to be found, made when the device's block was wanted for something else, and copied back when a sequence begins with
// them again.
//
// A copy stays when it has been copied back: if the device's block goes again, nothing has to be moved. What was used
// longest ago makes room.

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

  /// A block to copy these contents to. None: they are there already, or every block is held.
  std::optional<uint32_t> keep(const PrefixLink& link);
  /// A block that find() gave does not make room until it is let go of. Not nested.
  void hold(uint32_t block);
  void let_go(uint32_t block);

  /// For tests: that every block is in exactly one state, and the index and the lists say so.
  bool consistent() const;

 private:
  struct Block {
    bool held = false;
    std::list<uint32_t>::iterator place;  ///< in used_, unless it is held
  };
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
  std::list<uint32_t> used_;  ///< used longest ago first
  PrefixIndex index_;
};

}  // namespace moestro::orchestrator
