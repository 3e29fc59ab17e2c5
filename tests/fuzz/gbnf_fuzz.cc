// fuzz-deps: moestro_grammar
// A GBNF grammar as it stands in a request: it is refused with a reason, or it leads somewhere from wherever it allows
// a text to come to.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/check.h"
#include "orchestrator/grammar/compiled_grammar.h"
#include "orchestrator/grammar/gbnf.h"

namespace grammar = moestro::grammar;

namespace {

constexpr int kEnd = 256, kTokensMax = 200;

/// Every byte is a token.
std::shared_ptr<const grammar::GrammarVocabulary> bytes() {
  std::vector<std::string> all(kEnd + 1);
  for (size_t i = 0; i < kEnd; ++i) all[i] = std::string(1, static_cast<char>(i));
  return std::make_shared<const grammar::GrammarVocabulary>(
      grammar::GrammarVocabulary{grammar::TokenTrie(std::move(all)), {kEnd}});
}

bool allows(const moestro::TokenMask& mask, int token) {
  return (mask.at(static_cast<size_t>(token) / 32) >> (token % 32) & 1) != 0;
}

/// A text that the grammar allows, chosen by `seed`.
void walk(const std::shared_ptr<grammar::CompiledGrammar>& compiled, uint32_t seed) {
  grammar::GrammarConstraint constraint(compiled);
  for (int i = 0; i < kTokensMax; ++i) {
    const auto mask = constraint.allowed();
    if (!mask.is_ok()) {  // too ambiguous: its request fails
      MOESTRO_CHECK(compiled->failed(), "a text was allowed that nothing can follow, not even the end");
      return;
    }
    seed = seed * 1664525 + 1013904223;
    int token = static_cast<int>(seed >> 24);
    for (int tries = 0; tries < kEnd && !allows(**mask, token); ++tries) token = (token + 1) % kEnd;
    if (!allows(**mask, token)) {
      MOESTRO_CHECK(allows(**mask, kEnd), "nothing is allowed, not even the end");
      return;
    }
    MOESTRO_CHECK(constraint.accept(token), "what is allowed is not accepted");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = bytes();
  grammar::ByteGrammar g;
  const grammar::NodeId begin = g.add();
  const auto end = grammar::add_gbnf(g, begin, {reinterpret_cast<const char*>(data), size});
  if (!end.is_ok()) {
    MOESTRO_CHECK(!end.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  g.end(*end);
  g.set_start(begin);
  const auto compiled = std::make_shared<grammar::CompiledGrammar>(std::move(g), vocabulary);
  if (compiled->start() == grammar::kDeadState) return 0;
  for (uint32_t seed : {1u, 77u}) walk(compiled, seed + static_cast<uint32_t>(size));
  return 0;
}
