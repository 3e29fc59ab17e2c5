#pragma once
// The KV blocks of one worker: which sequences hold them, and which have contents that other sequences can use.
//
// A block is in one of three states:
//   free     not held, and its contents are of no use
//   held     by one or more sequences (a count); full blocks may be in the index, and only these are ever held twice
//   cached   not held, but in the index: it can be held again, or reused for other contents
// A block in the index is never written until it is removed from the index, so sharing needs no copies.
//
// Free blocks are used first, then the cached block that was released longest ago. A sequence releases its last block
// first, so the end of a chain is evicted before its beginning. Last come blocks to which a plan under way still writes
// for a sequence that has left: a plan that overtakes that one may not write to them.
//
// If the worker has room for blocks in host memory in addition to its device's (kv_host_blocks.h), an evicted block is
// copied there first. Copies are orders in the worker's next plan, made in their order before it computes. So the
// bookkeeping is true for every sequence in that plan or a later one.
//
// States of sequences (models with linear attention) are kept by a second object of this class: its "blocks" are slots,
// each with a state as it is after a block's last token, under that block's key.

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/plan_parts.h"
#include "orchestrator/scheduler/kv_host_blocks.h"
#include "orchestrator/scheduler/prefix_index.h"

namespace moestro::orchestrator {

class KvBlocks {
 public:
  KvBlocks(uint32_t blocks, uint32_t block_tokens, uint32_t host_blocks = 0);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t cached() const { return static_cast<uint32_t>(unheld_.size()); }
  /// Blocks that take() can give.
  uint32_t available() const { return static_cast<uint32_t>(free_.size() + still_written_.size()) + cached(); }
  uint32_t held() const { return total() - available(); }
  uint32_t needed(int64_t tokens) const { return static_cast<uint32_t>((tokens + block_tokens_ - 1) / block_tokens_); }
  uint32_t block_tokens() const { return block_tokens_; }

  /// A block to write to, held once. nullopt if every block is held.
  std::optional<uint32_t> take();
  /// The block with these contents, if there is one.
  std::optional<uint32_t> find(const PrefixLink& link) const { return index_.find(link); }
  /// Holds a block from find() once more.
  void share(uint32_t block);
  /// Releases one hold.
  void give_back(uint32_t block);
  /// A plan under way writes to this block, and its sequence leaves. Until written() has been called as often.
  void leave_written(uint32_t block) { ++blocks_[block].writers; }
  void written(uint32_t block);
  bool is_still_written(uint32_t block) const { return blocks_[block].writers > 0; }
  /// A held block is full and computed: other sequences can find it, unless a block with the same contents is already
  /// in the index. In that case the other block, if it is not held, counts as released just now. Whether it is this one
  /// that others find.
  bool publish(uint32_t block, const PrefixLink& link);

  /// Takes a block with these contents out of the index, if none holds it.
  void drop(const PrefixLink& link);

  /// The block in host memory with these contents, if there is one.
  std::optional<uint32_t> find_on_host(const PrefixLink& link) const { return host_.find(link); }
  /// Keeps a block from find_on_host() until it is brought in.
  void hold_on_host(uint32_t host_block) { host_.hold(host_block); }
  /// Copies it to `block`, which is held once and not written to. Other sequences can find `block` from now on.
  void bring_in(uint32_t host_block, uint32_t block, const PrefixLink& link);
  /// The copies that the worker makes before it computes its next plan.
  std::vector<KvCopy> take_copies() { return std::exchange(copies_, {}); }
  const KvHostBlocks& host() const { return host_; }

  bool is_held(uint32_t block) const { return blocks_[block].holders > 0; }
  /// Whether its only holder may write to it.
  bool writable(uint32_t block) const { return blocks_[block].holders == 1 && !index_.has(block); }

  // For tests.
  uint32_t holders(uint32_t block) const { return blocks_[block].holders; }
  /// The tokens of a published block; empty if it is not published.
  std::span<const TokenId> published_tokens(uint32_t block) const;
  /// Whether every block is in exactly one state, and the index and the lists agree.
  bool consistent() const;

 private:
  struct Block {
    uint32_t holders = 0;
    uint32_t writers = 0;  ///< plans under way that write to it for sequences that have left
    std::list<uint32_t>::iterator place;  ///< in unheld_, if cached
  };
  void forget(uint32_t block);
  void set_free(uint32_t block) { (is_still_written(block) ? still_written_ : free_).push_back(block); }

  uint32_t block_tokens_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> still_written_;  ///< free, apart from that
  std::list<uint32_t> unheld_;  ///< cached blocks, in the order of their release
  PrefixIndex index_;           ///< of what is published
  KvHostBlocks host_;
  std::vector<KvCopy> copies_;  ///< copies that are not in a plan yet
};

}  // namespace moestro::orchestrator
