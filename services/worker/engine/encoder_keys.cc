#include "services/worker/engine/encoder_keys.h"

#include <numeric>

namespace moestro::engine {

EncoderKeys::EncoderKeys(kernels::Buffers& buffers, const kernels::AttentionShape& shape, int64_t rows) {
  const int64_t blocks = ceil_div(rows, kernels::kKvBlockTokens);
  view_ = {.data = buffers.make<std::byte>(blocks * kernels::kv_block_bytes(shape, DType::kF32)),
           .dtype = DType::kF32,
           .blocks = blocks};
  table_.resize(static_cast<size_t>(blocks));
  std::iota(table_.begin(), table_.end(), 0U);
  sequences_.reserve(static_cast<size_t>(rows));
}

void EncoderKeys::begin(const StepBatch& batch) {
  sequences_.clear();
  for (const kernels::AttentionSequence& s : batch.attention)
    sequences_.push_back({.first_token = s.first_token,
                          .tokens = s.tokens,
                          .first_position = s.first_token,
                          .blocks = table_,
                          .seen_first = s.first_token,
                          .seen_end = s.first_token + s.tokens});
}

}  // namespace moestro::engine
