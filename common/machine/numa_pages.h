#pragma once
// Memory and the NUMA nodes of its pages: where new pages come from, and where those of a mapping are.

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

/// The size of the pieces in which memory is spread over nodes: a huge page, and more than a thread reads at a time, so
/// that a piece can be read by threads of its node.
inline constexpr size_t kNodePieceBytes = size_t{2} << 20;

/// Whether this thread has a memory policy, from numactl for example. Also false if the kernel does not tell.
bool has_memory_policy();

/// While it exists, pages that this thread touches first come from the node that was last given to come_from().
/// Afterwards the thread has its previous policy again.
class NodePreference {
 public:
  NodePreference();
  ~NodePreference();
  NodePreference(const NodePreference&) = delete;
  NodePreference& operator=(const NodePreference&) = delete;

  /// If the node is full, pages come from others. kUnavailable: the kernel or a seccomp filter refuses, and the policy
  /// is unchanged.
  Status come_from(int node);

 private:
  using Mask = std::array<unsigned long, kNodesEnd / (8 * sizeof(unsigned long))>;
  bool changed_ = false;
  int former_mode_ = 0;
  Mask former_nodes_{};
};

/// On which node each piece of a mapping is.
class NodeMap {
 public:
  NodeMap() = default;
  /// nodes[i] is the node of memory[i * kNodePieceBytes ...]; -1: unknown.
  NodeMap(std::span<const std::byte> memory, std::vector<int16_t> nodes);
  /// Asks the kernel for one page of each piece, at a different place in each: if small pages are interleaved, a piece
  /// may be a whole number of rounds. Reads a byte of that page, so `memory` must be backed. Empty if the kernel does
  /// not tell.
  static NodeMap of(std::span<const std::byte> memory);

  bool empty() const { return nodes_.empty(); }
  /// -1: not in this memory, or unknown.
  int node_of(const void* place) const {
    const auto piece =
        (reinterpret_cast<uintptr_t>(place) - begin_) / kNodePieceBytes;  // below `begin_`: a huge number
    return piece < nodes_.size() ? nodes_[piece] : -1;
  }
  /// The number of pieces on each node.
  std::map<int, size_t> pieces() const;

 private:
  uintptr_t begin_ = 0;
  std::vector<int16_t> nodes_;
};

/// "node 0 50 %, node 1 50 %"; empty for none.
std::string node_shares(const std::map<int, size_t>& pieces);

}  // namespace moestro::machine
