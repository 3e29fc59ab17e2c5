#include "orchestrator/grammar/pattern.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using testing::random_text;
using testing::reads;

ByteGrammar pattern_grammar(const std::string& pattern) {
  return testing::whole([&](ByteGrammar& g, NodeId from) {
    const auto end = add_pattern(g, from, pattern);
    EXPECT_TRUE(end.is_ok()) << pattern << ": " << (end.is_ok() ? "" : end.status().message());
    return end.is_ok() ? *end : from;
  });
}

TEST(Pattern, MatchesWhatTheStandardLibraryMatches) {
  // The slow reference: std::regex, ECMAScript's syntax.
  const std::vector<std::string> words{"",    "a",   "b",  "ab",  "ba", "aab",  "abab",   "abc", "0",  "42", "a1", "1a",
                                       "a-b", "a.b", "_x", "x y", "AB", "aaaa", "aaaaaa", "c",   "ac", "]",  "-",  "^"};
  for (const char* pattern :
       {"a",       "^a",       "a$",        "^a$",     "^(a|b)+$",       "^(?:ab)*$", "^a{2,3}", "^a{2}$",
        "^a{3,}$", "^[a-c]+$", "^[^a-c]*$", "\\d",     "^\\w+$",         "^\\W$",     "\\s",     "^\\S*$",
        "^a?b$",   "^a.b$",    "^a\\.b$",   "^[\\d_]", "^[a\\-c]+$",     "^$",        "^a|b$",   "^(a(b(c)?)?)$",
        "^[]a]",   "[\\]]",    "^a+?b",     "^[a-]+$", "^\\x61\\u0062$", "^(|a)b$"}) {
    if (std::string(pattern) == "^[]a]") continue;  // an empty class in ECMAScript, another thing in POSIX
    const ByteGrammar g = pattern_grammar(pattern);
    const std::regex reference(pattern);
    for (const std::string& word : words)
      EXPECT_EQ(reads(g, "\"" + word + "\""), std::regex_search(word, reference)) << pattern << " on '" << word << "'";
  }
}

TEST(Pattern, EscapesAndCharactersOfManyBytes) {
  EXPECT_TRUE(reads(pattern_grammar("^\"\\\\\n$"), R"("\"\\\n")"));
  EXPECT_FALSE(reads(pattern_grammar("^.$"), R"("\n")"));
  EXPECT_TRUE(reads(pattern_grammar("^.$"), "\"\xF0\x9F\x98\x80\""));
  EXPECT_TRUE(reads(pattern_grammar("^[\xC3\xA0-\xC3\xBC]$"), "\"\xC3\xA9\""));
  EXPECT_FALSE(reads(pattern_grammar("^[\xC3\xA0-\xC3\xBC]$"), "\"e\""));
  EXPECT_TRUE(reads(pattern_grammar("^\\u20ac$"), "\"\xE2\x82\xAC\""));
}

TEST(Pattern, OfAWholeText) {
  const std::vector<std::string> words{"", "a", "b", "ab", "abc", "aab", "\n", "a\n", "\"", "a|b", "12", "1a"};
  for (const char* pattern :
       {"a", "^a", "a$", "^a$", "a|b", "^a|b$", "(a|b)+", "a*b?c?", "\\d+", "[^a]", "", "a\\n", "\""}) {
    const ByteGrammar g = testing::whole([&](ByteGrammar& into, NodeId from) {
      const auto end = add_regex(into, from, pattern);
      EXPECT_TRUE(end.is_ok()) << pattern;
      return end.is_ok() ? *end : from;
    });
    for (const std::string& word : words)
      EXPECT_EQ(reads(g, word), std::regex_match(word, std::regex(pattern))) << pattern << " on '" << word << "'";
  }
}

TEST(Pattern, RandomTextsMatch) {
  std::mt19937 random(9);
  for (const char* pattern : {"^[a-z]{2,5}-\\d+$", "^(GET|POST) /[\\w/]*$", "x[0-9]y", "^#[0-9a-fA-F]{6}$"}) {
    const ByteGrammar g = pattern_grammar(pattern);
    for (int i = 0; i < 50; ++i) {
      const auto text = nlohmann::json::parse(random_text(g, random, 20), nullptr, false);
      ASSERT_TRUE(text.is_string());
      EXPECT_TRUE(std::regex_search(text.get<std::string>(), std::regex(pattern))) << pattern << " on " << text;
    }
  }
}

TEST(Pattern, RefusesByName) {
  const auto refusal = [](const std::string& pattern) {
    ByteGrammar g;
    const auto end = add_pattern(g, g.add(), pattern);
    return end.is_ok() ? Status::ok() : end.status();
  };
  const std::vector<std::pair<const char*, const char*>> unsupported{
      {"(?=a)", "'(?' is supported only as '(?:'"},
      {"(?<n>a)", "'(?' is supported only as '(?:'"},
      {"\\bx", "'\\b' is not supported"},
      {"(a)\\1", "'\\1' is not supported"},
      {"\\p{L}", "'\\p' is not supported"},
      {"a^", "'^' is supported only at the beginning"},
      {"(a$)b", "'$' in a group is not supported"},
      {"((a{1000}){1000}){1000}", "it repeats too much"}};
  for (const auto& [pattern, why] : unsupported) {
    EXPECT_EQ(refusal(pattern).code(), Code::kUnsupported) << pattern;
    EXPECT_EQ(refusal(pattern).message(), why) << pattern;
  }
  const Status nested = refusal(std::string(60, '(') + "a" + std::string(60, ')'));
  EXPECT_EQ(nested.code(), Code::kUnsupported);
  EXPECT_EQ(nested.message(), "groups are nested deeper than 50");
  for (const char* pattern : {"(", ")", "[a", "a{", "a{2,1}", "*", "a**", "\\", "[z-a]", "\\xZ", "a$b", "[\\d-z]",
                              "[\\", "a{99999}", "\xFF", "\\ud83d", "[\\ud800-\\udfff]"})
    EXPECT_EQ(refusal(pattern).code(), Code::kInvalidArgument) << pattern;
}

}  // namespace
}  // namespace moestro::grammar
