#include "orchestrator/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

size_t previous_character(std::string_view text, size_t pos) {
  --pos;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
  return pos;
}

bool word_before(std::string_view text, size_t pos) {
  return pos > 0 && is_word(code_point_at(text, previous_character(text, pos)).value);
}

bool word_after(std::string_view text, size_t pos) {
  return pos < text.size() && is_word(code_point_at(text, pos).value);
}

size_t skip_spaces_left(std::string_view text, size_t pos, size_t stop) {
  while (pos > stop) {
    const size_t before = previous_character(text, pos);
    if (!is_space(code_point_at(text, before).value)) break;
    pos = before;
  }
  return std::max(pos, stop);
}

size_t skip_spaces_right(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const CodePoint c = code_point_at(text, pos);
    if (!is_space(c.value)) break;
    pos += c.bytes;
  }
  return pos;
}

}  // namespace

void TokenFinder::add(std::string_view text, uint32_t token) {
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const auto [it, fresh] = edges_.try_emplace(uint64_t{node} * 256 + static_cast<unsigned char>(c), nodes_);
    if (fresh) {
      ++nodes_;
      token_at_.push_back(kNone);
    }
    node = it->second;
  }
  if (token_at_[node] == kNone) token_at_[node] = token;  // of two equal strings the first wins
}

TokenFinder::Hit TokenFinder::next(std::string_view text, size_t from) const {
  if (empty()) return {0, 0, 0};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Hit hit{0, 0, 0};
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = edges_.find(uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (token_at_[node] != kNone) hit = {begin, i + 1, token_at_[node]};
    }
    if (hit.end != 0) return hit;
  }
  return {0, 0, 0};
}

Result<AddedTokens::Token> AddedTokens::parse_token(const Json& entry, const Model& model) {
  if (!entry.is_object()) return invalid_argument("must be an object");
  Token token{};
  MOESTRO_ASSIGN_OR_RETURN(token.content, read_string(entry, "content"));
  MOESTRO_RETURN_IF_ERROR(read_int(entry, "id", 0, UINT32_MAX).status());
  token.id = model.id_of(token.content);
  MOESTRO_ASSIGN_OR_RETURN(token.flags.special, read_bool(entry, "special", false));
  MOESTRO_ASSIGN_OR_RETURN(token.flags.single_word, read_bool(entry, "single_word", false));
  MOESTRO_ASSIGN_OR_RETURN(token.flags.strip_left, read_bool(entry, "lstrip", false));
  MOESTRO_ASSIGN_OR_RETURN(token.flags.strip_right, read_bool(entry, "rstrip", false));
  MOESTRO_ASSIGN_OR_RETURN(token.flags.normalized, read_bool(entry, "normalized", !token.flags.special));
  return token;
}

// As the reference numbers them, whatever ids the file gives: the vocabulary's tokens as the vocabulary does, others in
// a row behind it.
Status AddedTokens::read(const Json& list, const Model& model) {
  if (!list.is_array()) return invalid_argument("'added_tokens' must be an array");
  auto next_id = static_cast<TokenId>(model.vocab().size());
  std::unordered_map<std::string, TokenId> seen;
  for (const Json& entry : list) {
    auto token = parse_token(entry, model);
    if (!token.is_ok()) return token.status().with_context("added token " + std::to_string(tokens_.size()));
    if (token->content.empty()) continue;
    if (token->id < 0) {
      const auto [it, fresh] = seen.emplace(token->content, next_id);
      if (fresh) ++next_id;
      token->id = it->second;
    }
    tokens_.push_back(std::move(token).value());
  }
  return Status::ok();
}

void AddedTokens::apply(const Further& further, const Model& model) {
  std::unordered_multimap<std::string, size_t> places;
  auto next_id = static_cast<TokenId>(model.vocab().size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    places.emplace(tokens_[i].content, i);
    next_id = std::max(next_id, tokens_[i].id + 1);
  }
  for (const Tokenizer::Said& one : further.said) {
    if (!places.contains(one.content) && !one.content.empty()) {
      TokenId id = model.id_of(one.content);
      if (id < 0 && !one.replaces && next_id < further.ids_end) id = next_id++;
      if (id < 0) continue;
      places.emplace(one.content, tokens_.size());
      tokens_.push_back({one.content, id, one.flags});
    }
    const auto [begin, end] = places.equal_range(one.content);
    for (auto it = begin; it != end; ++it) {
      Tokenizer::Flags& flags = tokens_[it->second].flags;
      if (one.replaces) flags = one.flags;
      flags.special = flags.special || !one.replaces;
    }
  }
}

Result<AddedTokens> AddedTokens::parse(const Json* list, const Further& further, const Model& model,
                                       const Normalizer& normalizer) {
  AddedTokens added;
  if (list != nullptr) MOESTRO_RETURN_IF_ERROR(added.read(*list, model));
  added.apply(further, model);
  for (uint32_t index = 0; index < added.tokens_.size(); ++index) {
    const Token& token = added.tokens_[index];
    if (!token.flags.normalized) {
      added.raw_.add(token.content, index);
      continue;
    }
    auto spelled = normalizer.apply(token.content);
    if (!spelled.is_ok()) return spelled.status().with_context("added token " + model::in_quotes(token.content));
    added.after_normalizer_.add(*spelled, index);
  }
  return added;
}

std::vector<Segment> AddedTokens::split(std::string_view text, bool normalized) const {
  const TokenFinder& finder = normalized ? after_normalizer_ : raw_;
  std::vector<Segment> out;
  size_t done = 0, from = 0;
  while (from < text.size()) {
    const TokenFinder::Hit hit = finder.next(text, from);
    if (hit.end == 0) break;
    from = hit.end;
    const Token& token = tokens_[hit.token];
    if (token.flags.single_word && (word_before(text, hit.begin) || word_after(text, hit.end))) continue;
    size_t begin = std::max(hit.begin, done), end = hit.end;
    if (token.flags.strip_left) begin = skip_spaces_left(text, begin, done);
    if (token.flags.strip_right) end = skip_spaces_right(text, end);
    if (begin > done) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = std::max(done, end);
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

}  // namespace moestro::tok
