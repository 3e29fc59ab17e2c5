#pragma once
// The KV cache of several sequences, over shuffled blocks. What was never written is NaN.

#include <vector>

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {

class PagedCache {
 public:
  PagedCache(int64_t block_bytes, DType dtype, const std::vector<int64_t>& lengths, Random& random) {
    int64_t blocks = 3;
    for (const int64_t n : lengths) blocks += ceil_div(n, kKvBlockTokens);
    bytes_.assign(static_cast<size_t>(blocks * block_bytes), std::byte{0xff});
    view_ = {bytes_.data(), dtype, blocks};
    std::vector<uint32_t> ids(static_cast<size_t>(blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random.engine());
    auto next = ids.begin();
    for (const int64_t n : lengths) {
      tables_.emplace_back(next, next + ceil_div(n, kKvBlockTokens));
      next += ceil_div(n, kKvBlockTokens);
    }
    unwritten_ = *next;
  }
  AttentionSequence sequence(size_t i, int64_t first_token, int64_t tokens, int64_t first_position) const {
    return {first_token, tokens, first_position, tables_[i]};
  }
  /// A block that no sequence has.
  uint32_t unwritten() const { return unwritten_; }
  const KvView& view() const { return view_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::vector<uint32_t>> tables_;
  uint32_t unwritten_ = 0;
  KvView view_;
};

}  // namespace moestro::kernels::test
