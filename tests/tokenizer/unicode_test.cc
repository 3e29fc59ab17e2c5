// Every code point against Hugging Face's tokenizers: what each regex class matches, and what each part of a
// tokenizer.json makes of it. scripts/python/unicode_cases.py says how the hashes come about.
#include "orchestrator/tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/normalizer.h"
#include "orchestrator/tokenizer/pre_tokenizer.h"
#include "orchestrator/tokenizer/regex.h"
#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/support/places.h"

namespace moestro::tok {
namespace {

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

template <typename Fn>
void for_each_code_point(Fn fn) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c >= 0xE000) fn(c);
  }
}

/// fn's text for each code point below `end` in turn.
template <typename Fn>
std::string text_of_all(Fn fn, char32_t end = 0x110000) {
  std::string text;
  for_each_code_point([&](char32_t c) {
    if (c < end) text += fn(utf8(c));
  });
  return text;
}

std::string itself(const std::string& c) { return c; }

/// `c` after an "a", of which the text of all has one between each two.
std::string after_a(const std::string& c) { return (c[0] == '\0' ? "" : "a") + c; }

std::string digest(const std::string& data) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH64(data.data(), data.size(), 0)));
  return text;
}

const Json& cases() {
  static const Json kFile = [] {
    std::ifstream in(test::source_dir() / "tests/fixtures/tokenizers/unicode.json");
    return Json::parse(in, nullptr, false);
  }();
  return kFile["cases"];
}

std::string runs_matched(const Regex& regex, const std::string& text, size_t& count) {
  std::vector<Match> matches;
  EXPECT_TRUE(regex.find_all(text, matches).is_ok());
  std::string runs;
  char32_t first = 0, next = 0;
  const auto close = [&] {
    char run[32];
    std::snprintf(run, sizeof run, "%X-%X,", static_cast<unsigned>(first), static_cast<unsigned>(next - 1));
    if (next > 0) runs += run;
  };
  for (const Match& match : matches) {
    for (size_t at = match.begin; at < match.end;) {
      const CodePoint c = code_point_at(text, at);
      ++count;
      if (next == 0 || (c.value != next && !(next == 0xD800 && c.value == 0xE000))) {
        close();
        first = c.value;
      }
      next = c.value + 1;
      at += c.bytes;
    }
  }
  close();
  return runs;
}

TEST(EveryCodePoint, IsInTheRegexClassesThatItIsInThere) {
  const std::string every = text_of_all(itself);
  size_t compared = 0;
  for (const Json& c : cases()) {
    if (!c.contains("regex")) continue;
    const auto regex = Regex::compile(c["regex"].get<std::string>());
    ASSERT_TRUE(regex.is_ok()) << regex.status().message();
    size_t count = 0;
    const std::string runs = runs_matched(*regex, every, count);
    EXPECT_EQ(digest(runs), c["hash"]) << c["regex"] << " matches " << count << ", not " << c["count"] << ": "
                                       << runs.substr(0, 200);
    ++compared;
  }
  EXPECT_GE(compared, 600u);
}

std::vector<std::string> normalizer_texts(const std::string& kind) {
  std::vector<std::string> texts;
  if (kind == "Strip") {  // which works on the ends of a text
    for_each_code_point([&](char32_t c) {
      if (c < 0x3100 || (c >= 0xF000 && c < 0x10000)) texts.push_back(utf8(c) + " x " + utf8(c));
    });
    return texts;
  }
  if (kind == "Precompiled") {  // which goes by clusters of characters
    const std::pair<const char*, const char*> around[] = {
        {"a", ""}, {"", "a"}, {"", "\u0301"}, {"\u00a9\u200d", "\u0301"}, {"\u00a9", "\u200d\u00a9\u0301"},
        {"\u0915\u094d", "\u0301"}, {"\u0915", "\u0915\u0301"}, {"\u0915\u094d", "\u0915\u0301"},
        {"\u1100", "\u1161\u0301"}, {"\u0600", "\u0301"}};
    for (const auto& [before, after] : around)
      texts.push_back(text_of_all([&](const std::string& c) { return before + c + after + "|"; }));
    return texts;
  }
  constexpr char32_t kEnd = 0x30000;  // what lies behind combines with nothing
  texts.push_back(text_of_all(after_a));
  texts.push_back(text_of_all([](const std::string& c) { return c + "\u0334\u0301\u0323a"; }, kEnd));
  texts.push_back(text_of_all([](const std::string& c) { return "a\u0301\u0323" + c; }, kEnd));
  texts.push_back(text_of_all([](const std::string& c) { return "\u1100" + c + "\u11a8"; }, kEnd));
  texts.push_back(text_of_all([](const std::string& c) { return c + c + "\u3099"; }, kEnd));
  return texts;
}

TEST(EveryCodePoint, IsNormalizedAsThere) {
  size_t compared = 0;
  for (const Json& c : cases()) {
    if (!c.contains("normalizer")) continue;
    const auto normalizer = Normalizer::parse(&c["normalizer"]);
    ASSERT_TRUE(normalizer.is_ok()) << normalizer.status().message();
    std::string made;
    for (const std::string& text : normalizer_texts(c["normalizer"]["type"])) {
      const auto normal = normalizer->apply(text);
      ASSERT_TRUE(normal.is_ok()) << normal.status().message();
      made += *normal + '\xff';
    }
    EXPECT_EQ(digest(made), c["hash"]) << c["normalizer"];
    ++compared;
  }
  EXPECT_EQ(compared, 17u);
}

TEST(EveryCodePoint, IsSplitAsThere) {
  const std::string texts[] = {text_of_all(itself), text_of_all(after_a)};
  size_t compared = 0;
  for (const Json& c : cases()) {
    if (!c.contains("pre_tokenizer")) continue;
    const auto pre_tokenizer = PreTokenizer::parse(&c["pre_tokenizer"]);
    ASSERT_TRUE(pre_tokenizer.is_ok()) << pre_tokenizer.status().message();
    std::string made;
    for (const std::string& text : texts) {
      Pieces pieces{text, {{0, text.size()}}, true};
      ASSERT_TRUE(pre_tokenizer->apply(pieces).is_ok());
      for (const Match& piece : pieces.ranges) made.append(pieces.text, piece.begin, piece.end - piece.begin) += '\xff';
    }
    EXPECT_EQ(digest(made), c["hash"]) << c["pre_tokenizer"];
    ++compared;
  }
  EXPECT_EQ(compared, 16u);
}

TEST(EveryCodePoint, StandsBesideAddedTokensAsThere) {
  const std::string text = text_of_all([](const std::string& c) { return c + "<t>" + c + "- <t> "; });
  size_t compared = 0;
  for (const Json& c : cases()) {
    if (!c.contains("added_token")) continue;
    Json token = {{"id", 1}, {"content", "<t>"}, {"special", true}, {"normalized", false}};
    token.update(c["added_token"]);
    const Json model = {{"type", "WordLevel"}, {"vocab", {{"?", 0}}}, {"unk_token", "?"}};
    const auto tokenizer = Tokenizer::from_json(Json{{"model", model}, {"added_tokens", {token}}}.dump());
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    const auto encoded = tokenizer->encode(text, false);
    ASSERT_TRUE(encoded.is_ok()) << encoded.status().message();
    std::string ids;
    for (const TokenId id : *encoded) ids += std::to_string(id) + ",";
    EXPECT_EQ(digest(ids), c["hash"]) << c["added_token"];
    ++compared;
  }
  EXPECT_EQ(compared, 3u);
}

}  // namespace
}  // namespace moestro::tok
