#include "store/pack/gguf_tokenizer.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"
#include "common/utf8.h"
#include "store/pack/gguf_pre_tokenizers.h"
#include "store/pack/spm_merges.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using nlohmann::json;

constexpr size_t kTokenBytesMax = 4096;  // the time for a token's merges grows with its length squared
constexpr std::string_view kWordMark = "\u2581";  // SentencePiece's space

std::string key_of(const char* name) { return std::string("tokenizer.ggml.") + name; }

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// What both kinds have.
struct Vocabulary {
  const std::vector<std::string>* tokens = nullptr;
  std::vector<int64_t> types;
  std::optional<int64_t> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;

  const std::string& text(int64_t id) const { return (*tokens)[static_cast<size_t>(id)]; }
};

Result<Vocabulary> read_vocabulary(const GgufMetadata& m, bool add_bos) {
  Vocabulary v;
  MOESTRO_ASSIGN_OR_RETURN(v.tokens, m.texts(key_of("tokens")));
  if (v.tokens == nullptr || v.tokens->empty()) return invalid_argument("metadata 'tokenizer.ggml.tokens' is missing");
  for (const std::string& token : *v.tokens) {
    if (token.size() > kTokenBytesMax)
      return unsupported("metadata 'tokenizer.ggml.tokens' has a token of " + std::to_string(token.size()) +
                         " bytes; at most " + std::to_string(kTokenBytesMax) + " are read");
    if (find_invalid_utf8(token) != std::string::npos)
      return invalid_argument("metadata 'tokenizer.ggml.tokens': the token " + in_quotes(token) +
                              " is not UTF-8; the file is damaged, so download it again");
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto* types, m.integers(key_of("token_type")));
  if (types != nullptr && types->size() != v.tokens->size())
    return invalid_argument("metadata 'tokenizer.ggml.token_type' has " + std::to_string(types->size()) +
                            " values for " + std::to_string(v.tokens->size()) + " tokens");
  v.types = types == nullptr ? std::vector<int64_t>(v.tokens->size(), kNormal) : *types;
  const auto id = [&](const char* name, std::optional<int64_t>& to) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(to, m.integer(key_of(name)));
    if (to && (*to < 0 || *to >= std::ssize(*v.tokens)))
      return invalid_argument("metadata " + in_quotes(key_of(name)) + " is " + std::to_string(*to) +
                              "; there are " + std::to_string(v.tokens->size()) + " tokens");
    return Status::ok();
  };
  MOESTRO_RETURN_IF_ERROR(id("bos_token_id", v.bos));
  MOESTRO_RETURN_IF_ERROR(id("eos_token_id", v.eos));
  MOESTRO_RETURN_IF_ERROR(id("unknown_token_id", v.unk));
  MOESTRO_RETURN_IF_ERROR(id("padding_token_id", v.pad));
  MOESTRO_ASSIGN_OR_RETURN(const auto bos, m.flag(key_of("add_bos_token")));
  MOESTRO_ASSIGN_OR_RETURN(const auto eos, m.flag(key_of("add_eos_token")));
  v.add_bos = bos.value_or(add_bos) && v.bos;
  v.add_eos = eos.value_or(false) && v.eos;
  return v;
}

/// Tokens that are found in a text as they are written.
json added_tokens(const Vocabulary& v) {
  json added = json::array();
  for (size_t i = 0; i < v.types.size(); ++i) {
    const bool special = v.types[i] == kControl || v.types[i] == kUnknown;
    if (!special && v.types[i] != kUserDefined) continue;
    added.push_back({{"id", i}, {"content", (*v.tokens)[i]}, {"single_word", false}, {"lstrip", false},
                     {"rstrip", false}, {"normalized", false}, {"special", special}});
  }
  return added;
}

/// Adds the tokens of begin and end; null if there are none.
json post_processor(const Vocabulary& v) {
  if (!v.add_bos && !v.add_eos) return nullptr;
  json single = json::array(), pair = json::array(), tokens = json::object();
  const auto special = [&](json& to, int64_t id, int type) {
    to.push_back({{"SpecialToken", {{"id", v.text(id)}, {"type_id", type}}}});
    tokens[v.text(id)] = {{"id", v.text(id)}, {"ids", {id}}, {"tokens", {v.text(id)}}};
  };
  const auto text = [&](json& to, const char* which, int type) {
    if (v.add_bos) special(to, *v.bos, type);
    to.push_back({{"Sequence", {{"id", which}, {"type_id", type}}}});
    if (v.add_eos) special(to, *v.eos, type);
  };
  text(single, "A", 0);
  text(pair, "A", 0);
  text(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

/// Ids by token, without those that fill the embedding up. kInvalidArgument if two have the same text.
Result<json> vocabulary_json(const Vocabulary& v) {
  json vocabulary = json::object();
  for (size_t i = 0; i < v.types.size(); ++i) {
    if (v.types[i] == kUnused) continue;
    const std::string& token = (*v.tokens)[i];
    if (vocabulary.contains(token))
      return invalid_argument("metadata 'tokenizer.ggml.tokens': the tokens " +
                              std::to_string(vocabulary[token].get<size_t>()) + " and " + std::to_string(i) +
                              " are both " + in_quotes(token));
    vocabulary[token] = i;
  }
  return vocabulary;
}

json assemble(const Vocabulary& v, json model) {
  return {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", added_tokens(v)},
          {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"post_processor", post_processor(v)},
          {"decoder", nullptr}, {"model", std::move(model)}};
}

Result<json> byte_level(const GgufMetadata& m, Vocabulary& v) {
  MOESTRO_ASSIGN_OR_RETURN(const auto pre, m.text(key_of("pre")));
  if (!pre)
    return unsupported("metadata 'tokenizer.ggml.pre' is missing: the file was made before it existed, and does not "
                       "say how text is cut; use a newer file of the model");
  MOESTRO_ASSIGN_OR_RETURN(const PreTokenizer* cut, find_pre_tokenizer(*pre));
  MOESTRO_ASSIGN_OR_RETURN(v, read_vocabulary(m, cut->add_bos));
  MOESTRO_ASSIGN_OR_RETURN(const auto* merges, m.texts(key_of("merges")));
  if (merges == nullptr) return invalid_argument("metadata 'tokenizer.ggml.merges' is missing");
  MOESTRO_ASSIGN_OR_RETURN(const json vocabulary, vocabulary_json(v));
  json out = assemble(v, {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr}, {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", cut->ignore_merges},
                          {"vocab", vocabulary}, {"merges", *merges}});
  const bool own = cut->regex == nullptr;  // the one of GPT-2
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", own}};
  json steps = json::array();
  for (const char* regex : {cut->before[0], cut->before[1], cut->regex})
    if (regex != nullptr)
      steps.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(bytes);
  out["pre_tokenizer"] = steps.size() == 1 ? bytes : json{{"type", "Sequence"}, {"pretokenizers", steps}};
  if (cut->composed) out["normalizer"] = {{"type", "NFC"}};
  out["decoder"] = bytes;
  return out;
}

/// llama.cpp's converter gives all pieces one score where a checkpoint has no tokenizer.model to take them from.
bool says_no_order(const Vocabulary& v, const std::vector<double>& scores) {
  std::vector<double> of_pieces;
  for (size_t i = 0; i < scores.size(); ++i)
    if (v.types[i] == kNormal) of_pieces.push_back(scores[i]);
  return of_pieces.size() > 1 && std::ranges::adjacent_find(of_pieces, std::not_equal_to()) == of_pieces.end();
}

Result<json> sentence_piece(const GgufMetadata& m, Vocabulary& v) {
  MOESTRO_ASSIGN_OR_RETURN(v, read_vocabulary(m, true));
  MOESTRO_ASSIGN_OR_RETURN(const auto* scores, m.numbers(key_of("scores")));
  if (scores == nullptr || scores->size() != v.tokens->size())
    return invalid_argument("metadata 'tokenizer.ggml.scores' must have a number for each token");
  if (says_no_order(v, *scores))
    return unsupported("metadata 'tokenizer.ggml.scores' are all the same: the file was made without the model's "
                       "tokenizer.model, and does not say in which order pieces are joined; use another file of the "
                       "model, or its safetensors");
  MOESTRO_ASSIGN_OR_RETURN(const auto prefix, m.flag(key_of("add_space_prefix")));
  MOESTRO_ASSIGN_OR_RETURN(const auto strip, m.flag(key_of("remove_extra_whitespaces")));
  if (strip.value_or(false))
    return unsupported("metadata 'tokenizer.ggml.remove_extra_whitespaces' is not supported for this tokenizer");
  MOESTRO_ASSIGN_OR_RETURN(const json vocabulary, vocabulary_json(v));
  std::vector<bool> made(v.types.size());
  for (size_t i = 0; i < made.size(); ++i) made[i] = v.types[i] == kNormal;
  json merges = json::array();
  for (const auto& [left, right] : spm_merges(*v.tokens, *scores, made)) merges.push_back({left, right});
  json out = assemble(v, {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", v.unk ? json(v.text(*v.unk)) : json()},
                          {"continuing_subword_prefix", nullptr}, {"end_of_word_suffix", nullptr}, {"fuse_unk", true},
                          {"byte_fallback", true}, {"ignore_merges", false}, {"vocab", vocabulary},
                          {"merges", std::move(merges)}});
  const bool begins = prefix.value_or(true);
  json normalizers = json::array();
  if (begins) normalizers.push_back({{"type", "Prepend"}, {"prepend", kWordMark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kWordMark}});
  out["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kWordMark}}}, {"content", " "}},
                   {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (begins) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  out["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  return out;
}

std::string dump(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

}  // namespace

Result<std::vector<TextFile>> gguf_tokenizer_files(const GgufMetadata& m) {
  MOESTRO_ASSIGN_OR_RETURN(const auto kind, m.text(key_of("model")));
  if (!kind) return invalid_argument("metadata 'tokenizer.ggml.model' is missing: the file has no tokenizer");
  if (*kind != "gpt2" && *kind != "llama")
    return unsupported("the tokenizer " + in_quotes(*kind) + " (tokenizer.ggml.model) is not supported (gpt2 and llama "
                       "are)");
  Vocabulary v;
  MOESTRO_ASSIGN_OR_RETURN(const json tokenizer, *kind == "gpt2" ? byte_level(m, v) : sentence_piece(m, v));
  json config = {{"add_bos_token", v.add_bos}, {"add_eos_token", v.add_eos}};
  const auto name = [&](const char* key, const std::optional<int64_t>& id) {
    if (id) config[key] = v.text(*id);
  };
  name("bos_token", v.bos);
  name("eos_token", v.eos);
  name("unk_token", v.unk);
  name("pad_token", v.pad);
  std::vector<TextFile> files = {{"tokenizer.json", dump(tokenizer)}, {"tokenizer_config.json", dump(config)}};
  MOESTRO_ASSIGN_OR_RETURN(const auto chat, m.text("tokenizer.chat_template"));
  if (chat) files.push_back({"chat_template.jinja", *chat});
  MOESTRO_ASSIGN_OR_RETURN(const auto tools, m.text("tokenizer.chat_template.tool_use"));
  if (tools) files.push_back({"tool_use.jinja", *tools});
  return files;
}

}  // namespace moestro::store
