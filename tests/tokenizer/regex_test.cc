// Regexes against Hugging Face's tokenizers (scripts/python/regex_cases.py writes the cases).
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/normalizer.h"
#include "tests/support/places.h"

namespace moestro::tok {
namespace {

using ::testing::HasSubstr;

TEST(RegexReference, MatchesTheSame) {
  std::ifstream in(test::source_dir() / "tests/fixtures/tokenizers/regex.json");
  const Json cases = Json::parse(in, nullptr, false);
  ASSERT_GE(cases.size(), 700u);
  size_t equal = 0, refused = 0;
  for (const Json& c : cases) {
    const Json part = {{"pattern", {{"Regex", c[0]}}}, {"content", "‸"}};
    const auto replacer = Replacer::parse(part);
    if (c[2].is_null()) {
      EXPECT_FALSE(replacer.is_ok()) << c;
      continue;
    }
    if (!replacer.is_ok()) {
      EXPECT_EQ(replacer.status().code(), Code::kUnsupported) << c << ": " << replacer.status().message();
      ++refused;
      continue;
    }
    const auto made = replacer->apply(c[1].get<std::string>());
    ASSERT_TRUE(made.is_ok()) << c << ": " << made.status().message();
    EXPECT_EQ(*made, c[2].get<std::string>()) << c;
    ++equal;
  }
  EXPECT_LT(refused * 20, equal);
}

TEST(Regex, WhatIsNotTranslatedIsRefusedByName) {
  for (const auto& [pattern, says] :
       {std::pair(R"((a)\1)", "a backreference (\\1)"), std::pair(R"((?<n>a)\g<n>)", "a reference (\\g)"),
        std::pair(R"(\X)", "text segments (\\X)"), std::pair("(?~a)", "the group (?~"),
        std::pair("(?(1)a|b)", "the group (?("),
        std::pair(R"(\p{Grapheme_Cluster_Break_Extend})", "the property 'Grapheme_Cluster_Break_Extend'"),
        std::pair("(*FAIL)", "a callout"), std::pair("a{70000}", "a repetition of more than 65,535 times"),
        std::pair(R"(\cA)", "a control character"), std::pair(R"(\xe9)", "a byte above"),
        std::pair("(?W)a", "the group (?W")}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.is_ok()) << pattern;
    EXPECT_EQ(regex.status().code(), Code::kUnsupported) << pattern;
    EXPECT_THAT(regex.status().message(), HasSubstr(says)) << pattern;
  }
}

TEST(Regex, TellsAtMost256KindsOfCharactersApart) {
  std::string pattern;
  for (int c = 0; c < 255; ++c) pattern += (c > 0 ? "|\\x{" : "\\x{") + std::to_string(4000 + c) + "}";
  EXPECT_TRUE(Regex::compile(pattern).is_ok());
  const auto regex = Regex::compile(pattern + "|x");
  ASSERT_FALSE(regex.is_ok());
  EXPECT_EQ(regex.status().code(), Code::kUnsupported);
  EXPECT_THAT(regex.status().message(), HasSubstr("more than 256 kinds of characters"));
}

TEST(Regex, NestingIsBounded) {
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("[", "]"), std::pair("(?i)", ""), std::pair("", "*")}) {
    std::string pattern;
    for (int i = 0; i < 5000; ++i) pattern += open;
    pattern += "a";
    for (int i = 0; i < 5000; ++i) pattern += close;
    EXPECT_EQ(Regex::compile(pattern).status().code(), Code::kInvalidArgument) << open;
  }
}

}  // namespace
}  // namespace moestro::tok
