#pragma once
// Keys of KV blocks by content: a chain of hashes over a sequence's tokens, one link per full block.
//
// A key stands for everything before it, as the block's keys and values do: key(i) = hash(key(i - 1), the tokens of
// block i). The hash is XXH3-128 with a secret that each process draws at random and never reveals, so clients cannot
// search for collisions. A comparison of blocks also compares their tokens and their parent's key (kv_blocks.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/ids.h"

namespace moestro::orchestrator {

struct PrefixKey {
  uint64_t low = 0, high = 0;
  friend bool operator==(const PrefixKey&, const PrefixKey&) = default;
};
struct PrefixKeyHash {
  size_t operator()(const PrefixKey& k) const { return static_cast<size_t>(k.low); }
};

using PrefixSecret = std::array<std::byte, 192>;
/// From the kernel's random numbers.
PrefixSecret random_prefix_secret();

class PrefixHasher {
 public:
  explicit PrefixHasher(const PrefixSecret& secret) : secret_(secret) {}

  /// The key before a sequence's first block. Sequences of different domains share nothing.
  PrefixKey root(std::string_view domain) const;
  PrefixKey next(const PrefixKey& parent, std::span<const TokenId> block);

 private:
  PrefixSecret secret_;
  std::vector<std::byte> input_;  ///< scratch
};

}  // namespace moestro::orchestrator
