#include "orchestrator/grammar/token_trie.h"

#include <algorithm>

namespace moestro::grammar {

namespace {
constexpr size_t kTokenBytesMax = 60'000;  // depths are 16 bits; longer ones are not offered
}

TokenTrie::TokenTrie(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].size() > kTokenBytesMax) bytes_[id].clear();
    if (!bytes_[id].empty()) tokens_.push_back(static_cast<TokenId>(id));
    depth_max_ = std::max(depth_max_, bytes_[id].size());
  }
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [this](TokenId a, TokenId b) { return this->bytes(a) < this->bytes(b); });
  std::vector<size_t> open;  // entries of the bytes of the token before
  for (uint32_t t = 0; t < tokens_.size(); ++t) {
    const std::string& now = this->bytes(tokens_[t]);
    size_t common = 0;
    while (common < open.size() && common < now.size() &&
           entries_[open[common]].byte == static_cast<uint8_t>(now[common]))
      ++common;
    for (; open.size() > common; open.pop_back()) entries_[open.back()].skip = static_cast<uint32_t>(entries_.size());
    for (size_t d = common; d < now.size(); ++d) {
      open.push_back(entries_.size());
      entries_.push_back({.tokens_begin = t,
                          .tokens_end = t,
                          .depth = static_cast<uint16_t>(d),
                          .byte = static_cast<uint8_t>(now[d])});
    }
    entries_[open.back()].tokens_end = t + 1;  // of equal tokens, the first has set tokens_begin
  }
  for (const size_t e : open) entries_[e].skip = static_cast<uint32_t>(entries_.size());
}

}  // namespace moestro::grammar
