#include "orchestrator/grammar/json_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/grammar/grammar_texts.h"

namespace moestro::grammar {
namespace {

using nlohmann::json;
using testing::random_text;
using testing::reads;
using testing::whole;

ByteGrammar any_value() {
  return whole([](ByteGrammar& g, NodeId from) { return JsonGrammar(g).value(from); });
}

TEST(JsonGrammar, ReadsValues) {
  const ByteGrammar g = any_value();
  for (const char* text :
       {"null", "true", "0", "-0", "-12.5e-3", "1E9", "\"\"", "\"a b\\n\\u00e9\\\"\xC3\xA9\"", "[]", "[1, 2,3]", "{}",
        "{\"a\": [{}, null]}", "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ]\n}", "[[[[[[[[]]]]]]]]"}) {
    EXPECT_TRUE(json::accept(text)) << text;
    EXPECT_TRUE(reads(g, text)) << text;
  }
  for (const char* text : {"",         "nul",         "01",       "1.",       ".5",
                           "+1",       "1e",          "'a'",      "\"",       "\"\n\"",
                           "\"\\x\"",  "\"\\ud800\"", "[1,]",     "[,1]",     "{\"a\"}",
                           "{a: 1}",   "{\"a\": 1,}", "\"\xFF\"", "\"\xC3\"", "\"\xED\xA0\x80\"",
                           "nullnull", " null",       "[1"})
    EXPECT_FALSE(reads(g, text)) << text;
}

TEST(JsonGrammar, RandomTextsAreJson) {
  const ByteGrammar g = any_value();
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(g, random);
    EXPECT_TRUE(json::accept(text)) << text;
  }
}

TEST(JsonGrammar, IntegersWithinBounds) {
  const std::pair<int64_t, int64_t> bounds[]{{0, 0},     {0, 9},  {5, 123}, {-7, 12},  {-120, -99},
                                             {99, 1001}, {-1, 1}, {10, 10}, {-1000, 0}};
  for (const auto& [low, high] : bounds) {
    const ByteGrammar g = whole([&](ByteGrammar& n, NodeId from) { return JsonGrammar(n).integer(from, low, high); });
    for (int64_t n = -1200; n <= 1200; ++n)
      EXPECT_EQ(reads(g, std::to_string(n)), low <= n && n <= high) << n << " in " << low << " to " << high;
    for (const char* text : {"-0", "00", "1.0", "+1", "", "-"}) EXPECT_FALSE(reads(g, text)) << text;
  }
}

/// Against comparisons, around every power of ten.
TEST(JsonGrammar, IntegersWithinBoundsOfEveryLength) {
  std::vector<int64_t> all{0, kInteger64Max, -kInteger64Max};
  for (int64_t power = 1;; power *= 10) {
    for (const int64_t near : {power - 1, power, power + 1}) all.insert(all.end(), {near, -near});
    if (power > kInteger64Max / 10) break;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const auto [low, high] = std::minmax({all[random() % all.size()], all[random() % all.size()]});
    const ByteGrammar g = whole([&](ByteGrammar& n, NodeId from) { return JsonGrammar(n).integer(from, low, high); });
    for (const int64_t n : all)
      EXPECT_EQ(reads(g, std::to_string(n)), low <= n && n <= high) << n << " in " << low << " to " << high;
    for (const char* text : {"9223372036854775808", "-9223372036854775808", "10000000000000000000", "-0"})
      EXPECT_FALSE(reads(g, text)) << text << " in " << low << " to " << high;
  }
}

TEST(JsonGrammar, KeysThatAreNoneOfSomeNames) {
  const std::vector<std::string> names{"ab", "a", "\xC3\xA9" "x", "\xE2\x82\xAC", "q\"", ""};
  const ByteGrammar g = whole([&](ByteGrammar& n, NodeId from) { return JsonGrammar(n).other_key(from, names); });
  for (const char* key :
       {"b", "abc", "aa", "\xC3\xA9", "\xC3\xA8x", "\xE2\x82\xAD", "\xE2\x82\xAC.", "\xF0\x9F\x98\x80", "q"})
    EXPECT_TRUE(reads(g, "\"" + std::string(key) + "\"")) << key;
  for (const std::string& name : names) EXPECT_FALSE(reads(g, "\"" + name + "\"")) << name;
  for (const char* key : {"\\u0061", "q\\\"", "\xC3", "\xE2\x82", "\n"})
    EXPECT_FALSE(reads(g, "\"" + std::string(key) + "\"")) << key;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto key = json::parse(random_text(g, random, 6), nullptr, false);
    ASSERT_TRUE(key.is_string());
    EXPECT_EQ(std::count(names.begin(), names.end(), key.get<std::string>()), 0);
  }
}

TEST(JsonGrammar, WhatIsTooAmbiguousSaysSo) {
  ByteGrammar g;  // a rule that calls itself in two ways before it reads anything
  const NodeId begin = g.add(), end = g.add(), one = g.add(), two = g.add();
  g.call(begin, begin, one);
  g.call(begin, begin, two);
  g.byte(one, end, 'x', 'x');
  g.byte(two, end, 'x', 'x');
  g.byte(begin, end, 'y', 'y');
  g.end(end);
  g.set_start(begin);
  EXPECT_TRUE(GrammarStates(g).failed());
}

}  // namespace
}  // namespace moestro::grammar
