// Templates of published models (models/) give what Python's Jinja2 gave for the same conversations (expected/, written
// by scripts/make_chat_cases.py).
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

TEST(ChatCorpus, TemplatesOfModelsAsInJinja2) {
  const Json file = Json::parse(read(folder() / "conversations.json"), nullptr, false);
  ASSERT_TRUE(file.is_object()) << "no conversations.json in " << folder();
  const Json& conversations = file.at("conversations");
  const std::chrono::system_clock::time_point now{std::chrono::seconds(file.at("now").get<int64_t>())};
  int models = 0, texts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "models")) {
    if (entry.path().extension() != ".jinja") continue;
    ++models;
    SCOPED_TRACE(entry.path().stem());
    const auto parsed = ChatTemplate::parse(read(entry.path()));
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    const Json expected =
        Json::parse(read(folder() / "expected" / (entry.path().stem().string() + ".json")), nullptr, false);
    ASSERT_TRUE(expected.is_array() && expected.size() == conversations.size());
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(i);
      texts += expected[i].contains("text");
      check(parsed->render(conversations[i].at("messages"), conversations[i].at("extra"), now), expected[i]);
    }
  }
  EXPECT_GE(models, 25);
  EXPECT_GE(texts, 10 * models) << "most conversations should be ones that a template takes";
}

}  // namespace
}  // namespace moestro
