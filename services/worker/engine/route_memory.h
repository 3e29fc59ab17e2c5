#pragma once
// The choices of the token at each position of the KV cache at every MoE layer, kept in addition to its keys and
// values. A sequence that begins with blocks of another one counts as having used those experts, as if it had computed
// the blocks itself.
//
// Two bytes per choice. For a model with 48 layers that choose 8 experts this is 768 bytes per token, less than a
// hundredth of its keys and values.

#include <cstdint>
#include <span>
#include <vector>

#include "common/activation/activation_matrix.h"

namespace moestro::engine {

class RouteMemory {
 public:
  RouteMemory() = default;
  RouteMemory(int64_t blocks, int64_t block_tokens, int64_t moe_layers, int64_t top_k);

  /// Rows [row, row + count) of a step of `rows` were positions [first, first + count) of a sequence with this block
  /// table. routes: [MoE layers, rows, top_k].
  void keep(std::span<const uint32_t> blocks, int64_t first, int64_t count, std::span<const int32_t> routes,
            int64_t rows, int64_t row);
  void copy_block(uint32_t from, uint32_t to);
  /// The choices at positions [first, last), as activation::count_routes gives them; appended to `out`.
  void count(std::span<const uint32_t> blocks, int64_t first, int64_t last,
             std::vector<activation::ActivationCount>& out);

 private:
  uint16_t* token(std::span<const uint32_t> blocks, int64_t position);

  int64_t block_tokens_ = 1, layers_ = 0, top_k_ = 0;
  std::vector<uint16_t> choices_;  ///< [block][token][layer][rank]
  std::vector<int32_t> routes_;    ///< scratch
  std::vector<uint32_t> counts_;   ///< scratch
};

}  // namespace moestro::engine
