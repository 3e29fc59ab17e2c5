#include "orchestrator/grammar/triggered_grammar.h"

#include <gtest/gtest.h>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {


bool has(const std::shared_ptr<const TokenMask>& mask, TokenId id) {
  return mask == nullptr || ((*mask)[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

/// Byte tokens, and longer ones that end a marker in their midst, or a value; the last two are a hidden token and the
/// end token.
std::shared_ptr<const GrammarVocabulary> vocabulary_around(const std::string& marker) {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  for (const char* value : {"12", "true", "tr", "[tru", "[true]"})
    for (size_t from = 0; from < marker.size(); ++from) bytes.push_back(marker.substr(from) + value);
  for (const char* word : {" no", "x", "[true]x", "[true][", "1"})
    bytes.push_back(marker + word), bytes.push_back(marker.back() + std::string(word)), bytes.emplace_back(word);
  bytes.push_back(marker + "[true]" + marker + "[");
  bytes.push_back(marker + "[true]" + marker + "no");
  bytes.insert(bytes.end(), 2, "");
  return std::make_shared<const GrammarVocabulary>(
      GrammarVocabulary{TokenTrie(bytes), {static_cast<TokenId>(bytes.size() - 1)}});
}

/// The slow reference: looks for the marker anew from the last value's end.
class Text {
 public:
  Text(const ByteGrammar& grammar, std::string marker) : grammar_(grammar), marker_(std::move(marker)) {}
  enum class End { kFree, kInside, kWrong };
  End end(const std::string& text) const {
    for (size_t at = 0;;) {
      const size_t found = text.find(marker_, at);
      if (found == std::string::npos) return End::kFree;
      GrammarStates states(grammar_);
      StateId state = states.start();
      for (at = found + marker_.size(); at < text.size() && !states.ends(state);) {
        state = states.next(state, static_cast<uint8_t>(text[at++]));
        if (state == kDeadState) return End::kWrong;
      }
      if (!states.ends(state)) return End::kInside;
    }
  }

 private:
  const ByteGrammar& grammar_;
  const std::string marker_;
};

const std::vector<Marker> kMarker{{"<m>"}};

TEST(TriggeredGrammar, MasksAndStepsEqualTheSlowReference) {
  const ByteGrammar g =
      testing::grammar_of(R"({"type": "array", "items": {"const": true}, "minItems": 1, "maxItems": 1})");
  std::mt19937 random(4);
  for (const std::string marker : {"<m>", "aab", "[[", "x"}) {
    const auto vocabulary = vocabulary_around(marker);
    const Text reference(g, marker);
    const auto grammar =
        std::make_shared<TriggeredGrammar>(std::make_shared<CompiledGrammar>(g, vocabulary),
                                           std::vector<Marker>{{marker}}, vocabulary);
    const auto last = static_cast<TokenId>(vocabulary->tokens.vocab() - 1);
    size_t refused = 0, values = 0;
    for (int round = 0; round < 3; ++round) {
      TriggeredConstraint constraint(grammar);
      std::string said;
      for (int step = 0; step < 30; ++step) {
        const auto mask = constraint.allowed();
        ASSERT_TRUE(mask.is_ok());
        const bool inside = reference.end(said) == Text::End::kInside;
        std::vector<TokenId> ways;
        for (TokenId id = 0; id <= last; ++id) {
          const std::string& bytes = vocabulary->tokens.bytes(id);
          const bool right = reference.end(said + bytes) != Text::End::kWrong;
          if (inside)
            ASSERT_TRUE(!has(*mask, id) || (right && !bytes.empty()))
                << marker << " after '" << said << "' comes '" << bytes << "'";
          else ASSERT_EQ(has(*mask, id), right) << marker << " after '" << said << "' comes '" << bytes << "'";
          refused += !inside && !right;
          if (has(*mask, id) && (id >= 256 || marker.find(bytes) != std::string::npos || inside)) ways.push_back(id);
        }
        const TokenId token = ways[random() % ways.size()];
        ASSERT_TRUE(constraint.accept(token));
        said += vocabulary->tokens.bytes(token);
        values += inside && reference.end(said) == Text::End::kFree;
      }
    }
    EXPECT_GT(refused, 0u) << marker;
    EXPECT_GT(values, 0u) << marker << ": free text again";
  }
}

TEST(TriggeredGrammar, FreeTextIsFreeWhereNoTokenGoesOnBehindTheMarker) {
  const auto vocabulary = testing::small_vocabulary();
  TriggeredConstraint constraint(std::make_shared<TriggeredGrammar>(
      std::make_shared<CompiledGrammar>(testing::grammar_of("{}"), vocabulary), kMarker, vocabulary));
  for (const char c : {'a', '<', 'm', 'm', '<', 'm'}) {
    EXPECT_EQ(*constraint.allowed(), nullptr);
    ASSERT_TRUE(constraint.accept(c));
  }
  EXPECT_EQ(*constraint.allowed(), nullptr);
  ASSERT_TRUE(constraint.accept('>'));
  EXPECT_NE(*constraint.allowed(), nullptr);
}

TEST(TriggeredGrammar, WhatMayNotBeSaidIsNotTaken) {
  const ByteGrammar g = testing::grammar_of(R"({"type": "boolean"})");
  const auto vocabulary = vocabulary_around("<m>");
  TriggeredConstraint constraint(
      std::make_shared<TriggeredGrammar>(std::make_shared<CompiledGrammar>(g, vocabulary), kMarker, vocabulary));
  const auto id_of = [&](const std::string& bytes) {
    TokenId id = 0;
    while (vocabulary->tokens.bytes(id) != bytes) ++id;
    return id;
  };
  EXPECT_FALSE(constraint.accept(-1));
  EXPECT_FALSE(constraint.accept(static_cast<TokenId>(vocabulary->tokens.vocab())));
  EXPECT_FALSE(constraint.accept(id_of("<m> no")));
  EXPECT_TRUE(constraint.accept(id_of("<m>tr"))) << "the place is as it was";
  EXPECT_FALSE(constraint.accept(id_of("x")));
  for (const char c : {'u', 'e', 'x'}) EXPECT_TRUE(constraint.accept(id_of(std::string(1, c)))) << c;
  EXPECT_FALSE(constraint.complete());
}

/// Which of some markers has been said first is what a plain search says.
TEST(Markers, AreFoundWhereAPlainSearchFindsThem) {
  const std::vector<Marker> markers{{"ab", /*at_start=*/true}, {"aab"}, {"ba ba"}, {"c", true}};
  const Markers automaton(markers);
  std::mt19937 random(2);
  size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    size_t first = std::string::npos;  // the end of the first marker
    Markers::State at = Markers::start();
    while (text.size() < 12) {
      text += "abc  b"[random() % 6];
      const bool ends = std::ranges::any_of(markers, [&](const Marker& m) {
        return m.at_start ? text == m.text : text.ends_with(m.text);
      });
      at = automaton.next(at, text.back());
      ASSERT_EQ(at == Markers::kFound, ends) << text;
      if (ends) {
        first = text.size();
        break;
      }
    }
    found += first != std::string::npos;
  }
  EXPECT_GT(found, 200u);
  EXPECT_TRUE(automaton.may_end('b') && automaton.may_end('c') && !automaton.may_end(' '));
}

/// One call and no more: behind it the text ends.
TEST(TriggeredGrammar, MayHoldForTheRestOfTheText) {
  const auto vocabulary = testing::small_vocabulary();
  const auto last = static_cast<TokenId>(vocabulary->tokens.vocab() - 1);
  TriggeredConstraint constraint(std::make_shared<TriggeredGrammar>(
      std::make_shared<CompiledGrammar>(testing::grammar_of(R"({"const": true})"), vocabulary),
      std::vector<Marker>{{"<m>", /*at_start=*/true}}, vocabulary, TriggeredGrammar::Then::kNothing));
  for (const char c : std::string("<m>true")) ASSERT_TRUE(constraint.accept(c)) << c;
  const auto mask = *constraint.allowed();
  ASSERT_NE(mask, nullptr);
  for (TokenId id = 0; id <= last; ++id) EXPECT_EQ(has(mask, id), id == last) << id;
}

}  // namespace
}  // namespace moestro::grammar
