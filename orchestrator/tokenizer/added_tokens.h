#pragma once
// The "added_tokens" of tokenizer.json: strings found in the text before BPE sees it.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/tokenizer/json_fields.h"
#include "orchestrator/tokenizer/model.h"
#include "orchestrator/tokenizer/normalizer.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::tok {

/// A range of text: a token (id >= 0), or text between tokens (id -1).
struct Segment {
  size_t begin, end;
  TokenId id;
};

/// Strings to find, leftmost first and longest among those that begin at one place.
class TokenFinder {
 public:
  void add(std::string_view text, uint32_t token);
  struct Hit {
    size_t begin, end;
    uint32_t token;
  };
  /// The first hit at or after `from`; end == 0 if there is none.
  Hit next(std::string_view text, size_t from) const;
  bool empty() const { return nodes_ <= 1; }

 private:
  static constexpr uint32_t kNone = ~0u;
  std::unordered_map<uint64_t, uint32_t> edges_;  // node * 256 + byte -> node
  std::vector<uint32_t> token_at_{kNone};         // by node
  std::array<bool, 256> starts_{};
  uint32_t nodes_ = 1;
};

class AddedTokens {
 public:
  struct Token {
    std::string content;
    TokenId id;
    Tokenizer::Flags flags;
  };

  /// As Tokenizer::from_json has them.
  struct Further {
    std::span<const Tokenizer::Said> said;
    int64_t ids_end;
  };
  /// `list` may be null: none.
  static Result<AddedTokens> parse(const Json* list, const Further& further, const Model& model,
                                   const Normalizer& normalizer);

  /// Cuts `text` at the tokens that are searched before (or, if `normalized`, after) the normalizer.
  std::vector<Segment> split(std::string_view text, bool normalized) const;
  const std::vector<Token>& tokens() const { return tokens_; }

 private:
  static Result<Token> parse_token(const Json& entry, const Model& model);
  Status read(const Json& list, const Model& model);
  void apply(const Further& further, const Model& model);

  std::vector<Token> tokens_;
  TokenFinder raw_, after_normalizer_;
};

}  // namespace moestro::tok
