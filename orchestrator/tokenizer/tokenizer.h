#pragma once
// Text to token ids and back, from a Hugging Face tokenizer.json.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace moestro {

namespace tok {
struct TokenizerData;
class DecodeStream;
}  // namespace tok

/// Immutable; copies share their contents, so passing it by value is cheap. Every const function may be called from any
/// thread.
class Tokenizer {
 public:
  /// How a token that a text spells out is found.
  struct Flags {
    bool special = false, single_word = false, strip_left = false, strip_right = false, normalized = false;
  };
  /// What another file says of a token.
  struct Said {
    std::string content;
    Flags flags;
    bool replaces = true;  ///< false: of a token that "added_tokens" has, no more than that it is special
  };
  /// `said` holds in place of what "added_tokens" says, and makes added tokens of those that only the vocabulary has.
  /// Of tokens that neither has, those that replace nothing get the next ids below `ids_end`; others are left out.
  /// Errors: kInvalidArgument for what is not a tokenizer.json, kUnsupported naming the kind of a part that is not
  /// known. "truncation" and "padding" are not applied: the caller decides what does not fit.
  static Result<Tokenizer> from_json(std::string_view json, std::span<const Said> said = {}, int64_t ids_end = 0);

  /// The ids of `utf8`. `add_special_tokens` applies the post-processor (the BOS token and the like); special tokens
  /// written out in the text are recognised either way. Errors: kInvalidArgument if the text is not UTF-8 (naming the
  /// byte), kExhausted if a pattern of the file exceeds its limits on this text, kCancelled soon after a stop request.
  Result<std::vector<TokenId>> encode(std::string_view utf8, bool add_special_tokens,
                                      const std::stop_token& stop = {}) const;

  /// The text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD. Unknown ids give no
  /// text.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  /// One more than the highest id, added tokens included.
  int64_t vocab_size() const;
  /// An upper bound of the bytes of text of one token, except the unknown token: the longest spelling in the file.
  int64_t token_bytes_max() const;
  std::optional<TokenId> id_of(std::string_view token) const;
  /// The token as it is spelled in the file ("Ġthe", "▁the", "<0x0A>"); empty if there is no such id.
  std::string_view token(TokenId id) const;
  /// The bytes the token stands for inside a text (" the", "\n"), possibly a part of a character.
  std::string token_bytes(TokenId id) const;
  /// token_bytes as valid UTF-8, with U+FFFD for parts of characters: for `logprobs`.
  std::string token_text(TokenId id) const;
  bool is_special(TokenId id) const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const tok::TokenizerData> data) : data_(std::move(data)) {}
  std::shared_ptr<const tok::TokenizerData> data_;
};

/// Decodes token by token. The pieces it returns, joined, equal Tokenizer::decode of all ids; a piece never
/// ends inside a character, and no piece is taken back later. Text that a later token could still change (the
/// first bytes of a character, a run of byte-fallback tokens) is held until it is certain.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Sets the tokens before the wanted text (the prompt). Later tokens are decoded as their continuation, so a leading
  /// space that is only removed at the start of a text is kept, and decode(context) is not returned again. Returns the
  /// end of decode(context) that later tokens could still change, such as U+FFFD for the first bytes of a character. If
  /// it does change, the changed text is returned completely. Call it at most once, before any push.
  std::string prime(std::span<const TokenId> context);
  /// After prime: the text that prime returned is wanted too, and comes with the next text, changed or not.
  void give_unsettled() { said_.clear(); }
  /// The text that `id` makes certain; often empty.
  std::string push(TokenId id);
  /// The rest. Nothing may be pushed afterwards.
  std::string finish();
  /// Whether a space at the beginning of the next token is not returned, because the text begins there.
  bool drops_space() const;

 private:
  std::shared_ptr<const tok::TokenizerData> data_;
  std::string without_said(std::string text);
  std::unique_ptr<tok::DecodeStream> stream_;
  std::string said_;  ///< the end of the context's text that the stream has not returned yet
  bool skip_special_;
};

}  // namespace moestro
