#pragma once
// The models that look up whole words: WordLevel, and WordPiece (Schuster and Nakajima 2012; as in BERT, arXiv
// 1810.04805), which repeatedly takes the longest known prefix.

#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/tokenizer/model.h"

namespace moestro::tok {

class WordLevelModel : public Model {
 public:
  static Result<WordLevelModel> parse(const Json& part);
  Status tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const override;

 protected:
  Status parse_words(const Json& part);
  Status append_unknown(std::vector<TokenId>& out) const;

 private:
  std::string unk_token_;
};

class WordPieceModel : public WordLevelModel {
 public:
  static Result<WordPieceModel> parse(const Json& part);
  /// A piece with an unknown part is unknown as a whole, and so is one that is too long.
  Status tokenize(std::string_view piece, const std::stop_token& stop, std::vector<TokenId>& out) const override;

 private:
  std::string prefix_;  // of what continues a word
  int64_t word_chars_max_ = 0;
  size_t token_bytes_max_ = 0;
};

}  // namespace moestro::tok
