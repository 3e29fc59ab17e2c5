// Every character in several places of a word: what Python's str methods and Jinja2's title filter make of it.
// scripts/make_characters.py says how the hashes come about.
#include "orchestrator/chat/characters.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "orchestrator/chat/chat_template.h"
#include "orchestrator/chat/text.h"
#include "tests/support/places.h"

namespace moestro::jinja {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

/// Of each character but surrogates a word, and a space after it.
Words words(const std::string& before, const std::string& after) {
  Words made;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string word = before;
    append_utf8(word, c);
    made.push_back(word + after + " ");
  }
  return made;
}

std::string together(const Words& all) {
  std::string text;
  for (const std::string& word : all) text += word;
  return text;
}

std::string one_by_one(const Words& all, std::string (*fn)(std::string_view)) {
  std::string text;
  for (const std::string& word : all) text += fn(word);
  return text;
}

std::string in_class(const Words& all, CharClass wanted) {
  std::string text;
  for (const std::string& word : all) {
    const std::string_view bare(word.data(), word.size() - 1);
    text += all_of_class(bare, wanted) ? '1' : '0';
  }
  return text;
}

std::string title_filter(const Words& all) {
  const auto parsed = ChatTemplate::parse("{{ x|title }}");
  const auto text = parsed->render(Json::array(), Json{{"x", together(all)}});
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? *text : "";
}

const std::map<std::string, std::function<std::string(const Words&)>> kFunctions = {
    {"upper", [](const Words& all) { return upper(together(all)); }},
    {"lower", [](const Words& all) { return lower(together(all)); }},
    {"title", [](const Words& all) { return title(together(all)); }},
    {"title filter", title_filter},
    {"capitalize", [](const Words& all) { return one_by_one(all, capitalize); }},
    {"isupper", [](const Words& all) { return in_class(all, CharClass::kUpper); }},
    {"islower", [](const Words& all) { return in_class(all, CharClass::kLower); }},
    {"isdigit", [](const Words& all) { return in_class(all, CharClass::kDigit); }},
    {"isspace", [](const Words& all) { return in_class(all, CharClass::kSpace); }},
};

TEST(ChatCharacters, AreAsInPython) {
  std::ifstream in(test::source_dir() / "tests/chat/characters.json");
  const Json file = Json::parse(in, nullptr, false);
  ASSERT_TRUE(file.is_object()) << "no tests/chat/characters.json in " << test::source_dir();
  std::set<std::string> functions;
  std::pair<std::string, std::string> place;
  Words all = words(place.first, place.second);
  for (const Json& one : file.at("cases")) {
    const auto name = one.at("function").get<std::string>();
    const std::pair here{one.at("before").get<std::string>(), one.at("after").get<std::string>()};
    SCOPED_TRACE(name + " of each character between '" + here.first + "' and '" + here.second + "'");
    ASSERT_TRUE(kFunctions.contains(name));
    functions.insert(name);
    if (here != place) all = words(here.first, here.second);
    place = here;
    const std::string made = kFunctions.at(name)(all);
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(XXH64(made.data(), made.size(), 0)));
    EXPECT_EQ(hash, one.at("hash").get<std::string>());
  }
  EXPECT_EQ(functions.size(), kFunctions.size());
  EXPECT_EQ(file.at("cases").size(), 6 * 5 + 2 * 4u) << "six places for five functions, two for isupper() and its like";
}

TEST(ChatCharacters, ThatBecomeSeveral) {
  EXPECT_EQ(upper("\uFB01sh stra\u00DFe \u0390"), "FISH STRASSE \u0399\u0308\u0301");
  EXPECT_EQ(title("\uFB01sh \u01C6 \u10D0"), "Fish \u01C5 \u10D0");
  EXPECT_EQ(capitalize("\u0149A\u0130"), "\u02BCNai\u0307");
  EXPECT_EQ(lower("\u0130"), "i\u0307");
}

TEST(ChatCharacters, ASigmaIsFinalAtTheEndOfAWord) {
  EXPECT_EQ(lower("\u039F\u0394\u039F\u03A3 \u03A3\u03A3 \u03A3"), "\u03BF\u03B4\u03BF\u03C2 \u03C3\u03C2 \u03C3");
  EXPECT_EQ(lower("A\u0301\u03A3'"), "a\u0301\u03C2'") << "marks and apostrophes are looked through";
  EXPECT_EQ(lower("A\u03A3'A"), "a\u03C3'a");
}

}  // namespace
}  // namespace moestro::jinja
