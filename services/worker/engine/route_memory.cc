#include "services/worker/engine/route_memory.h"

#include <algorithm>

namespace moestro::engine {

RouteMemory::RouteMemory(int64_t blocks, int64_t block_tokens, int64_t moe_layers, int64_t top_k)
    : block_tokens_(block_tokens),
      layers_(moe_layers),
      top_k_(top_k),
      choices_(static_cast<size_t>(blocks * block_tokens * moe_layers * top_k)) {}

uint16_t* RouteMemory::token(std::span<const uint32_t> blocks, int64_t position) {
  const int64_t at =
      int64_t{blocks[static_cast<size_t>(position / block_tokens_)]} * block_tokens_ + position % block_tokens_;
  return choices_.data() + at * layers_ * top_k_;
}

void RouteMemory::keep(std::span<const uint32_t> blocks, int64_t first, int64_t count, std::span<const int32_t> routes,
                       int64_t rows, int64_t row) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t* const kept = token(blocks, first + i);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const int32_t* const chosen = routes.data() + (layer * rows + row + i) * top_k_;
      std::transform(chosen, chosen + top_k_, kept + layer * top_k_,
                     [](int32_t e) { return static_cast<uint16_t>(e); });
    }
  }
}

void RouteMemory::copy_block(uint32_t from, uint32_t to) {
  const int64_t length = block_tokens_ * layers_ * top_k_;
  std::copy_n(choices_.begin() + from * length, length, choices_.begin() + to * length);
}

void RouteMemory::count(std::span<const uint32_t> blocks, int64_t first, int64_t last,
                        std::vector<activation::ActivationCount>& out) {
  const int64_t tokens = last - first;
  routes_.resize(static_cast<size_t>(tokens * layers_ * top_k_));
  for (int64_t i = 0; i < tokens; ++i) {
    const uint16_t* const kept = token(blocks, first + i);
    for (int64_t layer = 0; layer < layers_; ++layer)
      std::copy_n(kept + layer * top_k_, top_k_, routes_.begin() + (layer * tokens + i) * top_k_);
  }
  activation::count_routes(routes_, layers_, tokens, top_k_, 0, tokens, counts_, out);
}

}  // namespace moestro::engine
