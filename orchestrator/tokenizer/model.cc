#include "orchestrator/tokenizer/model.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/bpe_model.h"
#include "orchestrator/tokenizer/unigram_model.h"
#include "orchestrator/tokenizer/word_models.h"

namespace moestro::tok {
namespace {

/// Files from before 2020 have no "type"; their fields tell.
std::string kind_of_old_model(const Json& part) {
  if (member(part, "merges") != nullptr) return "BPE";
  if (const Json* vocab = member(part, "vocab"); vocab != nullptr && vocab->is_array()) return "Unigram";
  if (member(part, "unk_token") == nullptr) return "";
  const bool pieces = member(part, "continuing_subword_prefix") && member(part, "max_input_chars_per_word");
  return pieces ? "WordPiece" : "WordLevel";
}

template <typename Kind>
Result<std::unique_ptr<Model>> made(Result<Kind> model) {
  if (!model.is_ok()) return model.status().with_context("the model");
  return std::unique_ptr<Model>(std::make_unique<Kind>(std::move(model).value()));
}

}  // namespace

Result<std::unique_ptr<Model>> Model::parse(const Json& part) {
  if (!part.is_object()) return invalid_argument("the model must be an object");
  MOESTRO_ASSIGN_OR_RETURN(const std::string kind, read_string_or(part, "type", kind_of_old_model(part)));
  if (kind == "BPE") return made(BpeModel::parse(part));
  if (kind == "WordPiece") return made(WordPieceModel::parse(part));
  if (kind == "WordLevel") return made(WordLevelModel::parse(part));
  if (kind == "Unigram") return made(UnigramModel::parse(part));
  return unknown_kind("the model", kind);
}

TokenId Model::id_of(std::string_view token) const {
  const auto it = vocab_.find(std::string(token));
  return it == vocab_.end() ? -1 : it->second;
}

Status Model::parse_vocab(const Json& part) {
  const Json* vocab = member(part, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return invalid_argument("'vocab' must be an object");
  // Ids index arrays, so one absurd id must not cost memory.
  const auto id_max = static_cast<int64_t>(8 * vocab->size() + 65536);
  vocab_.reserve(vocab->size());
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_integer() || id < 0 || id > id_max) {
      return invalid_argument("the id of '" + token.substr(0, 60) + "' must be a whole number from 0 to " +
                              std::to_string(id_max));
    }
    vocab_.emplace(token, id.get<TokenId>());
  }
  return Status::ok();
}

void ByteTokens::find(const Model& model) {
  for (size_t b = 0; b < ids_.size(); ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02zX>", b);
    ids_[b] = model.id_of(name);
  }
}

bool ByteTokens::append(std::string_view bytes, std::vector<TokenId>& ids) const {
  const auto id_of = [&](char b) { return ids_[static_cast<unsigned char>(b)]; };
  if (std::any_of(bytes.begin(), bytes.end(), [&](char b) { return id_of(b) < 0; })) return false;
  for (const char b : bytes) ids.push_back(id_of(b));
  return true;
}

}  // namespace moestro::tok
