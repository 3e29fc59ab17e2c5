#pragma once
// Memory and the NUMA nodes that its pages lie on: where new pages come from, and where those of a mapping are.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/machine/numa.h"
#include "common/status.h"

namespace moestro::machine {

/// Memory that is spread over nodes is so in pieces of this: a huge page, and more than a thread reads at a time, so
/// that a piece's node can be where it is read.
inline constexpr size_t kNodePieceBytes = size_t{2} << 20;

/// This thread has a policy of its own for new memory: numactl's, say. False also where the kernel does not tell.
bool has_memory_policy();

/// While it lives, pages that this thread touches first come from the node that come_from() was given last; then it has
/// the policy again that it had before.
class NodePreference {
 public:
  NodePreference();
  ~NodePreference();
  NodePreference(const NodePreference&) = delete;
  NodePreference& operator=(const NodePreference&) = delete;

  /// From others once this node is full. kUnavailable: the kernel or a seccomp filter refuses; the policy is what it
  /// was.
  Status come_from(int node);

 private:
  using Mask = std::array<unsigned long, kNodesEnd / (8 * sizeof(unsigned long))>;
  bool changed_ = false;
  int former_mode_ = 0;
  Mask former_nodes_{};
};

/// On which node each piece of a mapping lies.
class NodeMap {
 public:
  NodeMap() = default;
  /// nodes[i] is of memory[i * kNodePieceBytes ...]; -1: nobody knows.
  NodeMap(std::span<const std::byte> memory, std::vector<int16_t> nodes);
  /// As the kernel says of one page of each piece, not at the same place of each: where something deals small pages out
  /// in turns, a piece may be a whole number of rounds. Reads a byte of it, so `memory` is backed. Empty where the
  /// kernel does not tell.
  static NodeMap of(std::span<const std::byte> memory);

  bool empty() const { return nodes_.empty(); }
  /// -1: not of this memory, or nobody knows.
  int node_of(const void* place) const {
    const auto piece =
        (reinterpret_cast<uintptr_t>(place) - begin_) / kNodePieceBytes;  // below `begin_`: a huge number
    return piece < nodes_.size() ? nodes_[piece] : -1;
  }
  /// How many pieces lie on each node.
  std::map<int, size_t> pieces() const;

 private:
  uintptr_t begin_ = 0;
  std::vector<int16_t> nodes_;
};

/// "node 0 50 %, node 1 50 %"; empty for none.
std::string node_shares(const std::map<int, size_t>& pieces);

}  // namespace moestro::machine
