#include "orchestrator/tokenizer/word_models.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/utf8.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr int64_t kWordCharsMax = int64_t{1} << 32;

}  // namespace

Result<WordLevelModel> WordLevelModel::parse(const Json& part) {
  WordLevelModel model;
  MOESTRO_RETURN_IF_ERROR(model.parse_words(part));
  return model;
}

Status WordLevelModel::parse_words(const Json& part) {
  MOESTRO_ASSIGN_OR_RETURN(unk_token_, read_string(part, "unk_token"));
  return parse_vocab(part);
}

Status WordLevelModel::append_unknown(std::vector<TokenId>& out) const {
  const TokenId unk = id_of(unk_token_);
  if (unk < 0) return invalid_argument("unk_token '" + unk_token_.substr(0, 60) + "' is not in the vocabulary");
  out.push_back(unk);
  return Status::ok();
}

Status WordLevelModel::tokenize(std::string_view piece, const std::stop_token&, std::vector<TokenId>& out) const {
  if (piece.empty()) return Status::ok();
  const TokenId id = id_of(piece);
  if (id < 0) return append_unknown(out);
  out.push_back(id);
  return Status::ok();
}

Result<WordPieceModel> WordPieceModel::parse(const Json& part) {
  WordPieceModel model;
  MOESTRO_RETURN_IF_ERROR(model.parse_words(part));
  MOESTRO_ASSIGN_OR_RETURN(model.prefix_, read_string(part, "continuing_subword_prefix"));
  MOESTRO_ASSIGN_OR_RETURN(model.word_chars_max_, read_int(part, "max_input_chars_per_word", 0, kWordCharsMax));
  for (const auto& [token, id] : model.vocab()) model.token_bytes_max_ = std::max(model.token_bytes_max_, token.size());
  return model;
}

Status WordPieceModel::tokenize(std::string_view piece, const std::stop_token&, std::vector<TokenId>& out) const {
  if (static_cast<int64_t>(count_code_points(piece)) > word_chars_max_) return append_unknown(out);
  const size_t before = out.size();
  std::string spelled;
  for (size_t begin = 0; begin < piece.size();) {
    const std::string_view prefix = begin == 0 ? std::string_view() : std::string_view(prefix_);
    // No token is longer than the longest, so nothing longer is looked up.
    size_t length = std::min(piece.size() - begin, token_bytes_max_ - std::min(token_bytes_max_, prefix.size()));
    TokenId id = -1;
    for (; length > 0; --length) {
      if (begin + length < piece.size() && is_continuation_byte(piece[begin + length])) continue;
      spelled.assign(prefix).append(piece.substr(begin, length));
      if (id = id_of(spelled); id >= 0) break;
    }
    if (id < 0) {
      out.resize(before);
      return append_unknown(out);
    }
    out.push_back(id);
    begin += length;
  }
  return Status::ok();
}

}  // namespace moestro::tok
