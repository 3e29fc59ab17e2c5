#pragma once
// Where a prompt's tokens stand in its text, for `text_offset` of an echo.

#include <string>
#include <string_view>

#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::orchestrator {

struct PlacedToken {
  std::string text;        ///< as the text shows the token
  size_t code_points = 0;  ///< of the text before it
};

/// Walks `text`, which outlives it, token by token. A token that the text does not show (a BOS that the tokenizer adds,
/// the space that it puts before the first word) takes no room in it. Where the tokenizer has normalised the text, a
/// token that cannot be found stands where the walk has come to.
class TextCursor {
 public:
  TextCursor(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer), text_(text) {}
  PlacedToken next(TokenId id);

 private:
  PlacedToken take(std::string shown, size_t bytes);
  const Tokenizer& tokenizer_;
  std::string_view text_;
  size_t at_ = 0, code_points_ = 0;  ///< bytes taken, and the characters that begin in them
};

}  // namespace moestro::orchestrator
