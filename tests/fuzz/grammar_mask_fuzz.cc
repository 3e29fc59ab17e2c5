// fuzz-deps: moestro_grammar moestro_api_requests
// Masks of constrained decoding: the input is a marker's line, a seed byte, lines of tokens up to an empty one, then a
// schema. A mask says of each token what its bytes say one by one; and so it does in free text, of tokens that end the
// marker.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/check.h"
#include "orchestrator/api/request_json.h"
#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/grammar/triggered_grammar.h"

namespace api = moestro::orchestrator;
namespace grammar = moestro::grammar;
using moestro::TokenId;

namespace {

constexpr size_t kWordsMax = 64, kTokensMax = 40, kWordBytesMax = 48;

struct Input {
  std::string marker;
  uint8_t seed = 0;
  std::vector<std::string> tokens;  ///< every byte, then words, then the end token
  std::string schema;
};

std::optional<Input> read(std::string_view text) {
  const auto line = [&text]() -> std::string {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string taken(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return taken;
  };
  Input input;
  input.marker = line();
  if (input.marker.empty() || input.marker.size() > kWordBytesMax || text.empty()) return std::nullopt;
  input.seed = static_cast<uint8_t>(text.front());
  text.remove_prefix(1);
  for (int b = 0; b < 256; ++b) input.tokens.emplace_back(1, static_cast<char>(b));
  for (std::string word = line(); !word.empty() && input.tokens.size() < 256 + kWordsMax; word = line())
    if (word.size() <= kWordBytesMax) input.tokens.push_back(word);
  input.tokens.emplace_back();
  input.schema = text;
  return input;
}

bool allows(const moestro::TokenMask& mask, TokenId token) {
  return (mask.at(static_cast<size_t>(token) / 32) >> (token % 32) & 1) != 0;
}

/// The mask in many small pieces, as the scheduler asks for it.
template <typename Grammar, typename Where>
moestro::Result<grammar::CompiledGrammar::Mask> mask_of(Grammar& grammar, const Where& where) {
  constexpr int64_t kPiece = 997;
  while (true) {
    int64_t work = kPiece;
    MOESTRO_ASSIGN_OR_RETURN(const auto mask, grammar.allowed_within(where, work));
    if (mask) return *mask;
  }
}

/// Token after token, each of them allowed; before each, every token of the vocabulary by its bytes.
void follow_grammar(grammar::CompiledGrammar& compiled, const Input& input) {
  grammar::StateId state = compiled.start();
  uint32_t random = input.seed;
  for (size_t step = 0; step < kTokensMax && !compiled.complete(state); ++step) {
    const auto mask = mask_of(compiled, state);
    if (!mask.is_ok()) return;  // too ambiguous, so its request fails
    std::vector<TokenId> ways;
    for (size_t id = 0; id + 1 < input.tokens.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      grammar::StateId at = state;
      for (const char c : input.tokens[id]) at = compiled.advance_byte(at, static_cast<uint8_t>(c));
      if (compiled.failed()) return;
      MOESTRO_CHECK(allows(**mask, token) == (at != grammar::kDeadState), "a mask says other than the token's bytes");
      MOESTRO_CHECK(compiled.advance(state, token) == at, "a token leads elsewhere than its bytes");
      if (at != grammar::kDeadState) ways.push_back(token);
    }
    if (ways.empty()) return;
    random = random * 1664525 + 1013904223;
    state = compiled.advance(state, ways[(random >> 16) % ways.size()]);
  }
}

void follow_trigger(const std::shared_ptr<grammar::CompiledGrammar>& compiled,
                    const std::shared_ptr<const grammar::GrammarVocabulary>& vocabulary, const Input& input) {
  grammar::TriggeredGrammar triggered(compiled, {{input.marker}}, vocabulary);
  grammar::TriggeredGrammar::Place place;
  uint32_t random = input.seed;
  for (size_t step = 0; step < kTokensMax; ++step) {
    const auto mask = mask_of(triggered, place);
    if (!mask.is_ok()) return;
    std::vector<TokenId> ways;
    for (size_t id = 0; id + 1 < input.tokens.size(); ++id) {
      const auto token = static_cast<TokenId>(id);
      std::optional<grammar::TriggeredGrammar::Place> at = place;
      for (const char c : input.tokens[id])
        if (at) at = triggered.advance(*at, static_cast<TokenId>(static_cast<uint8_t>(c)));
      const auto whole = triggered.advance(place, token);
      if (compiled->failed()) return;
      MOESTRO_CHECK(
          whole.has_value() == at.has_value() && (!at || (at->said == whole->said && at->state == whole->state)),
          "a token leads elsewhere than its bytes");
      const bool allowed = *mask == nullptr || allows(**mask, token);
      MOESTRO_CHECK(place.inside() ? !allowed || at : allowed == at.has_value(),
                    "a mask says other than the token's bytes");
      if (allowed) ways.push_back(token);
    }
    if (ways.empty()) return;
    random = random * 1664525 + 1013904223;
    // Words and the marker's bytes come more often than chance would have them.
    TokenId next = ways[(random >> 16) % ways.size()];
    if ((random >> 8 & 1) != 0 && !place.inside())
      next = static_cast<TokenId>(static_cast<uint8_t>(input.marker[place.said]));
    const auto went = triggered.advance(place, next);
    if (!went) return;
    place = *went;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = read({reinterpret_cast<const char*>(data), size});
  if (!input) return 0;
  const auto body = api::parse_body(R"({"schema":)" + input->schema + "}");
  const auto* object = std::get_if<api::RequestJson>(&body);
  if (object == nullptr) return 0;
  const auto schema = object->find("schema");
  grammar::ByteGrammar g;
  const grammar::NodeId begin = g.add();
  const auto end = grammar::JsonSchemaCompiler(g, *schema).compile(begin);
  if (!end.is_ok()) return 0;
  g.end(*end);
  g.set_start(begin);
  if (g.too_large()) return 0;
  const auto vocabulary = std::make_shared<const grammar::GrammarVocabulary>(
      grammar::GrammarVocabulary{grammar::TokenTrie(input->tokens), {static_cast<TokenId>(input->tokens.size() - 1)}});
  const auto compiled = std::make_shared<grammar::CompiledGrammar>(std::move(g), vocabulary);
  follow_grammar(*compiled, *input);
  follow_trigger(compiled, vocabulary, *input);
  return 0;
}
