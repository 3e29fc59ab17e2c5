#pragma once
// The KV blocks of one worker: who holds which, and which hold contents that another sequence can use.
//
// A block is in one of three states:
//   free     nobody holds it, nothing in it is of use
//   held     by one sequence or more (a count); full ones may be in the index, and only those are ever held twice
//   cached   nobody holds it, but it is in the index: it can be held again, or taken for something else
// A block in the index is never written again until it is taken out of it, so sharing needs no copies.
//
// Room is made from free blocks first, then from the cached one that was given back longest ago. A sequence gives back
// its last block first, so of a chain the end goes before what it stands on. Where the worker has room for blocks in
// host memory beside its device's (kv_host_blocks.h), a cached block that goes is copied there first. Copies are orders
// to the worker: its next plan has them, in their order, and they are made before it computes. So what they say is true
// for whoever is in that plan or a later one.

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "orchestrator/scheduler/kv_host_blocks.h"
#include "orchestrator/scheduler/prefix_index.h"

namespace moestro::orchestrator {

/// Copies a block's contents. Ids from KvBlocks::total() on are those of host memory.
struct KvCopy {
  uint32_t from = 0, to = 0;
  friend bool operator==(const KvCopy&, const KvCopy&) = default;
};

class KvBlocks {
 public:
  KvBlocks(uint32_t blocks, uint32_t block_tokens, uint32_t host_blocks = 0);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t cached() const { return static_cast<uint32_t>(unheld_.size()); }
  /// Blocks that take() can give.
  uint32_t available() const { return static_cast<uint32_t>(free_.size()) + cached(); }
  uint32_t held() const { return total() - available(); }
  uint32_t needed(int64_t tokens) const { return static_cast<uint32_t>((tokens + block_tokens_ - 1) / block_tokens_); }
  uint32_t block_tokens() const { return block_tokens_; }

  /// A block to write to, held once. None if every block is held.
  std::optional<uint32_t> take();
  /// The block with these contents, if there is one.
  std::optional<uint32_t> find(const PrefixLink& link) const { return index_.find(link); }
  /// Holds a block that find() gave once more.
  void share(uint32_t block);
  /// Held once less.
  void give_back(uint32_t block);
  /// A held block is full and written: others may find it, unless one of the same contents is there already. Then that
  /// one, if nobody holds it, counts as given back just now.
  void publish(uint32_t block, const PrefixLink& link);

  /// The block in host memory with these contents, if there is one.
  std::optional<uint32_t> find_on_host(const PrefixLink& link) const { return host_.find(link); }
  /// One that find_on_host() gave stays there until it is brought in.
  void hold_on_host(uint32_t host_block) { host_.hold(host_block); }
  /// Copies it to `block`, which is held once and not written to; others may find that one from now on.
  void bring_in(uint32_t host_block, uint32_t block, const PrefixLink& link);
  /// What the worker is to copy before it computes its next plan.
  std::vector<KvCopy> take_copies() { return std::exchange(copies_, {}); }
  const KvHostBlocks& host() const { return host_; }

  bool is_held(uint32_t block) const { return blocks_[block].holders > 0; }
  /// Whether its one holder may write to it.
  bool writable(uint32_t block) const { return blocks_[block].holders == 1 && !index_.has(block); }

  // For tests.
  uint32_t holders(uint32_t block) const { return blocks_[block].holders; }
  /// The tokens that a published block stands for; empty if it is not published.
  std::span<const TokenId> published_tokens(uint32_t block) const;
  /// That every block is in exactly one state, and the index and the lists say so.
  bool consistent() const;

 private:
  struct Block {
    uint32_t holders = 0;
    std::list<uint32_t>::iterator place;  ///< in unheld_, while cached
  };
  void forget(uint32_t block);

  uint32_t block_tokens_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
  std::list<uint32_t> unheld_;  ///< cached blocks, given back longest ago first
  PrefixIndex index_;           ///< of what is published
  KvHostBlocks host_;
  std::vector<KvCopy> copies_;  ///< that the worker does not know of yet
};

}  // namespace moestro::orchestrator
