#include "orchestrator/grammar/compiled_grammar.h"

#include <gtest/gtest.h>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using testing::grammar_of;
using testing::small_vocabulary;

bool has(const TokenMask& mask, TokenId id) { return mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1; }

/// The slow reference: every token by itself, through an automaton of its own.
TokenMask slow_mask(const ByteGrammar& g, const GrammarVocabulary& v, const std::string& said) {
  TokenMask mask((v.tokens.vocab() + 31) / 32, 0);
  GrammarStates states(g);
  const auto walk = [&](StateId at, const std::string& text) {
    for (const char c : text) at = states.next(at, static_cast<uint8_t>(c));
    return at;
  };
  const StateId here = walk(states.start(), said);
  for (size_t id = 0; id < v.tokens.vocab(); ++id) {
    const std::string& bytes = v.tokens.bytes(static_cast<TokenId>(id));
    if (!bytes.empty() && walk(here, bytes) != kDeadState) mask[id / 32] |= 1u << (id % 32);
  }
  if (states.accepting(here)) mask[static_cast<size_t>(v.eos_ids[0]) / 32] |= 1u << (v.eos_ids[0] % 32);
  return mask;
}

TEST(CompiledGrammar, MasksEqualTheSlowReferenceAllTheWay) {
  const auto vocabulary = small_vocabulary();
  const TokenId end = vocabulary->eos_ids[0];
  std::mt19937 random(11);
  for (const char* schema :
       {"{}", R"({"type": "object", "additionalProperties": true})",
        R"({"properties": {"a": {"type": ["integer", "null"]}, "b": {"enum": ["abc", true]}}, "required": ["a"]})",
        R"({"type": "array", "items": {"type": "array", "items": {"type": "number"}}, "maxItems": 3})"}) {
    const ByteGrammar g = grammar_of(schema);
    const auto compiled = std::make_shared<CompiledGrammar>(g, vocabulary);
    for (int round = 0; round < 8; ++round) {
      GrammarConstraint constraint(compiled);
      std::string said;
      for (int step = 0; step < 25 && !constraint.complete(); ++step) {
        const auto mask = constraint.allowed();
        ASSERT_TRUE(mask.is_ok());
        ASSERT_EQ(**mask, slow_mask(g, *vocabulary, said)) << schema << " after " << said;
        std::vector<TokenId> ways;
        for (TokenId id = 0; id <= end; ++id)
          if (has(**mask, id)) ways.push_back(id);
        const TokenId token = ways[random() % ways.size()];
        if (token == end) break;
        ASSERT_TRUE(constraint.accept(token));
        said += vocabulary->tokens.bytes(token);
      }
      if (constraint.complete()) {
        EXPECT_TRUE(nlohmann::json::accept(said)) << said;
      }
    }
  }
}

TEST(CompiledGrammar, AMaskThatIsMadeInPiecesIsTheSame) {
  const auto vocabulary = small_vocabulary();
  const ByteGrammar g = grammar_of(R"({"type": "object", "additionalProperties": true})");
  CompiledGrammar whole(g, vocabulary), pieces(g, vocabulary);
  int64_t all = INT64_MAX;
  const auto expected = whole.allowed_within(whole.start(), all);
  int calls = 0;
  std::optional<CompiledGrammar::Mask> made;
  while (!made) {
    ASSERT_LT(++calls, 1000);
    int64_t work = 1;
    const auto piece = pieces.allowed_within(pieces.start(), work);
    ASSERT_TRUE(piece.is_ok());
    EXPECT_LE(work, 0) << "no more than one step beyond what was given";
    made = *piece;
  }
  EXPECT_GT(calls, 2);
  EXPECT_EQ(***expected, **made);
}

TEST(CompiledGrammar, AMaskHasABoundOfWork) {
  // Hundreds of places at once, and a state for every text of a few characters: each mask is long.
  const auto compiled = std::make_shared<CompiledGrammar>(
      grammar_of(R"({"type": "string", "pattern": "^(a|b)*a(a|b){200}$"})"), small_vocabulary());
  GrammarConstraint constraint(compiled);
  int64_t most = 0;
  int calls = 0, said = 0;
  for (; said < 300; ++calls) {
    int64_t work = 1000;
    const auto mask = constraint.allowed_within(work);
    ASSERT_TRUE(mask.is_ok());
    most = std::max(most, 1000 - work);
    if (!*mask) continue;
    ASSERT_TRUE(constraint.accept(said == 0 ? '"' : said % 3 == 0 ? 'a' : 'b'));
    ++said;
  }
  EXPECT_GT(calls, 2 * said);
  EXPECT_LT(most, 1000 + 200 * 100) << "one state beyond what was given";
}

TEST(CompiledGrammar, ASpaceThatIsNotShownIsNoneOfTheText) {
  const auto accepts = [](const std::string& literal, const std::string& text, bool unshown) {
    ByteGrammar g;
    const NodeId begin = g.add();
    g.end(g.literal(begin, literal));
    g.set_start(begin);
    GrammarConstraint constraint(std::make_shared<CompiledGrammar>(std::move(g), small_vocabulary()), unshown);
    for (const char c : text) {
      const auto id = static_cast<TokenId>(static_cast<uint8_t>(c));
      const bool allowed = has(**constraint.allowed(), id);
      EXPECT_EQ(constraint.accept(id), allowed) << text;
      if (!allowed) return false;
    }
    return constraint.complete();
  };
  for (const char* text : {"yes", " yes"}) EXPECT_TRUE(accepts("yes", text, true)) << text;
  EXPECT_FALSE(accepts("yes", "  yes", true));
  EXPECT_FALSE(accepts("yes", " yes", false));
  EXPECT_TRUE(accepts(" yes", "  yes", true));
  EXPECT_FALSE(accepts(" yes", " yes", true)) << "\"yes\" is shown";
  EXPECT_TRUE(accepts(" yes", " yes", false));
}

TEST(CompiledGrammar, WhatIsNotAllowedIsNotAccepted) {
  const auto compiled = std::make_shared<CompiledGrammar>(grammar_of(R"({"type": "boolean"})"), small_vocabulary());
  const auto token = [](char c) { return static_cast<TokenId>(static_cast<uint8_t>(c)); };
  EXPECT_FALSE(GrammarConstraint(compiled).accept(token('x')));
  EXPECT_FALSE(GrammarConstraint(compiled).accept(small_vocabulary()->eos_ids[0])) << "the text has not begun";
  EXPECT_FALSE(GrammarConstraint(compiled).accept(-1));
  EXPECT_FALSE(GrammarConstraint(compiled).accept(1 << 30));
  GrammarConstraint constraint(compiled);
  for (const char c : std::string("true")) {
    EXPECT_FALSE(constraint.complete());
    EXPECT_TRUE(constraint.accept(token(c)));
  }
  EXPECT_TRUE(constraint.complete()) << "nothing can follow";
  const auto mask = constraint.allowed();
  ASSERT_TRUE(mask.is_ok());
  EXPECT_TRUE(has(**mask, small_vocabulary()->eos_ids[0]));
}

TEST(CompiledGrammar, SaysWhenNoTokenFits) {
  GrammarVocabulary v{TokenTrie({"x", "y", ""}), {2}};
  CompiledGrammar compiled(grammar_of(R"({"type": "null"})"), std::make_shared<const GrammarVocabulary>(std::move(v)));
  int64_t work = INT64_MAX;
  const auto mask = compiled.allowed_within(compiled.start(), work);
  ASSERT_FALSE(mask.is_ok());
  EXPECT_EQ(mask.status().code(), Code::kInternal);
}

}  // namespace
}  // namespace moestro::grammar
