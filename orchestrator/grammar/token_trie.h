#pragma once
// The bytes of all tokens of a vocabulary, so that a walk through an automaton visits common prefixes once. Immutable.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"

namespace moestro::grammar {

class TokenTrie {
 public:
  struct Entry {
    uint32_t skip = 0;          ///< the first entry that does not begin with the bytes up to here
    uint32_t tokens_begin = 0, tokens_end = 0;  ///< in tokens(): those that end here
    uint16_t depth = 0;         ///< bytes before this one
    uint8_t byte = 0;
  };

  /// bytes[id] of each token; empty: the token is not text.
  explicit TokenTrie(std::vector<std::string> bytes);

  const std::vector<Entry>& entries() const { return entries_; }  ///< entries that begin with an entry's bytes follow
                                                                  ///< it
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::string& bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  size_t vocab() const { return bytes_.size(); }
  size_t depth_max() const { return depth_max_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Entry> entries_;
  std::vector<TokenId> tokens_;
  size_t depth_max_ = 0;
};

}  // namespace moestro::grammar
