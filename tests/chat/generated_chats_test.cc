// What the fuzz target of chat templates tries: generated templates meet many variables, and each is rendered the same
// twice, within a limit.
#include "tests/chat/generated_chats.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/support/places.h"

namespace moestro::test {
namespace {

using Json = nlohmann::ordered_json;
using Input = std::vector<uint8_t>;
using Kind = Rendering::Kind;

GeneratedChat chat_of(const Input& input) {
  return generated_chat(input.data(), input.size());
}

std::string text_of(const Json& variables) {
  return variables.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TEST(GeneratedChats, TemplatesMeetManyVariables) {
  std::mt19937 random(1);
  std::set<std::string> variables;
  std::map<std::string, std::set<Json::value_t>> types;
  std::map<Kind, int> kinds;
  int other_text = 0;
  for (int i = 0; i < 500; ++i) {
    Input input(8 + random() % 64);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    const GeneratedChat chat = chat_of(input);
    const std::string text = text_of(chat.variables);
    EXPECT_LT(text.size(), 100'000u);
    variables.insert(text);
    for (const auto& [name, value] : chat.variables.items()) types[name].insert(value.type());
    const Rendering made = render_twice(chat.source, chat.variables);
    ++kinds[made.kind];
    other_text += made.kind == Kind::kText && made.text != render_twice(chat.source, usual_variables()).text;
  }
  EXPECT_GT(variables.size(), 400u);
  for (const char* name : {"s", "l", "d", "n", "messages", "tools", "x"})
    EXPECT_GE(types[name].size(), 6u) << name << " is a text, a list, a number and so on";
  EXPECT_EQ(kinds[Kind::kNotParsed], 0);
  EXPECT_GT(kinds[Kind::kText], 50);
  EXPECT_GT(other_text, 10) << "texts in which the variables matter";
}

TEST(GeneratedChats, BytesThatAreNotThereOrZeroAreTheUsualVariables) {
  for (const size_t size : {0u, 1u, 2u, 100u}) EXPECT_EQ(chat_of(Input(size)).variables, usual_variables()) << size;
}

TEST(GeneratedChats, TheLastBytesWriteTheVariablesAndTheFirstTheTemplate) {
  Input input(40);
  input[0] = 2;
  const GeneratedChat before = chat_of(input);
  input.back() = 1;
  const GeneratedChat without_s = chat_of(input);
  EXPECT_EQ(without_s.source, before.source);
  EXPECT_FALSE(without_s.variables.contains("s"));
  input[0] = 0;
  EXPECT_NE(chat_of(input).source, before.source);
  EXPECT_EQ(chat_of(input).variables, without_s.variables);
}

TEST(GeneratedChats, SeedsOfTheFuzzTarget) {
  int templates = 0, generated = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests/fuzz/corpus/chat_template")) {
    SCOPED_TRACE(entry.path());
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    const std::string seed = bytes.str();
    if (seed.starts_with('{')) {
      ++templates;
      EXPECT_NE(render_twice(seed.substr(0, seed.find('\0')), usual_variables()).kind, Kind::kNotParsed);
      continue;
    }
    ++generated;
    const GeneratedChat chat = chat_of(Input(seed.begin(), seed.end()));
    const Rendering made = render_twice(chat.source, chat.variables);
    EXPECT_EQ(made.kind, Kind::kText) << chat.source;
    EXPECT_NE(made.text, render_twice(chat.source, usual_variables()).text) << "its variables matter";
  }
  EXPECT_GE(templates, 3);
  EXPECT_GE(generated, 1);
}

}  // namespace
}  // namespace moestro::test
