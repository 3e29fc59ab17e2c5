#pragma once
// For tests of grammars: whether a text is in a language, and random texts of it.

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "orchestrator/grammar/compiled_grammar.h"
#include "orchestrator/grammar/json_schema.h"

namespace moestro::grammar::testing {

/// The grammar of a schema; fails the test if there is none.
ByteGrammar grammar_of(const std::string& schema);
/// Why there is none: "unsupported: ..." and so on; "" if there is one.
Status refusal_of(const std::string& schema);
/// The grammar of what `add` reads, as a whole text.
template <typename Add>
ByteGrammar whole(const Add& add) {
  ByteGrammar g;
  const NodeId begin = g.add();
  g.end(add(g, begin));
  g.set_start(begin);
  return g;
}

bool reads(const ByteGrammar& grammar, std::string_view text);
/// A random text of the language, found by random bytes that do not lead nowhere; it is driven to its end after
/// `long_enough` bytes.
std::string random_text(const ByteGrammar& grammar, std::mt19937& random, size_t long_enough = 40);
/// That the grammar of a schema reads all of `good` and none of `bad`, and makes only JSON.
void expect(const std::string& schema, const std::vector<const char*>& good, const std::vector<const char*>& bad);
/// Every byte a token, and some words; the last is the end token.
std::shared_ptr<const GrammarVocabulary> small_vocabulary();

}  // namespace moestro::grammar::testing
