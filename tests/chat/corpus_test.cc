// Templates of published models (models/) give what Python's Jinja2 gave for the same conversations (expected/, written
// by scripts/make_chat_cases.py).
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "orchestrator/chat/chat_template.h"
#include "tests/support/places.h"

namespace moestro {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path folder() { return test::source_dir() / "tests/chat"; }

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void check(const Result<std::string>& text, const Json& expected) {
  if (expected.contains("text")) {
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    EXPECT_EQ(*text, expected.at("text").get<std::string>());
    return;
  }
  ASSERT_FALSE(text.is_ok()) << *text;
  EXPECT_EQ(text.status().code(), Code::kInvalidArgument) << text.status().message();
  if (expected.contains("raises")) {
    EXPECT_EQ(text.status().message(), expected.at("raises").get<std::string>());
  }
}

std::set<std::string> names_of(const char* subfolder, const char* extension) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / subfolder)) {
    if (entry.path().extension() == extension) names.insert(entry.path().stem().string());
  }
  return names;
}

/// The first column of the table in SOURCES.md.
std::set<std::string> names_in_sources() {
  std::set<std::string> names;
  std::istringstream lines(read(folder() / "models/SOURCES.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    const std::string name = line.substr(2, line.find(" |", 2) - 2);
    if (name != "file" && name != "---") EXPECT_TRUE(names.insert(name).second) << name << " has two rows";
  }
  return names;
}

TEST(ChatCorpus, SourcesNameEveryTemplate) {
  const std::set<std::string> names = names_in_sources();
  EXPECT_GE(names.size(), 33u) << "rows of the table in " << folder() / "models/SOURCES.md";
  EXPECT_EQ(names_of("models", ".jinja"), names);
  EXPECT_EQ(names_of("expected", ".json"), names);
}

TEST(ChatCorpus, TemplatesOfModelsAsInJinja2) {
  const Json file = Json::parse(read(folder() / "conversations.json"), nullptr, false);
  ASSERT_TRUE(file.is_object()) << "no conversations.json in " << folder();
  const Json& conversations = file.at("conversations");
  const std::chrono::system_clock::time_point now{std::chrono::seconds(file.at("now").get<int64_t>())};
  const std::set<std::string> models = names_in_sources();
  size_t texts = 0;
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const auto parsed = ChatTemplate::parse(read(folder() / "models" / (model + ".jinja")));
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    const Json expected = Json::parse(read(folder() / "expected" / (model + ".json")), nullptr, false);
    ASSERT_TRUE(expected.is_array() && expected.size() == conversations.size());
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(i);
      texts += expected[i].contains("text");
      check(parsed->render(conversations[i].at("messages"), conversations[i].at("extra"), now), expected[i]);
    }
  }
  EXPECT_GE(texts, 10 * models.size()) << "most conversations should be ones that a template takes";
}

}  // namespace
}  // namespace moestro
