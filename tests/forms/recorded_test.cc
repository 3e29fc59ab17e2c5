// Answers of each family (cases/*.json, with their sources): what they are taken apart into, however they are cut.

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "orchestrator/forms/find_tool_form.h"
#include "tests/forms/answer_parts.h"
#include "tests/support/places.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using testing::AnswerParts;
using testing::AnswerReader;
using testing::pieces_of;

const ToolArguments kRecordedTools = arguments_of_tools(grammar::SchemaJson::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "location": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": {
    "path": {"type": "string"}, "text": {"type": "string"}, "options": {"type": "object"}, "lines": {"type": "array"},
    "force": {"type": "boolean"}, "note": {"type": ["string", "null"]}, "any": {}}}}},
  {"type": "function", "function": {"name": "now"}}])"));

constexpr const char* kCases = "tests/forms/cases/";

std::vector<std::string> random_pieces(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  const size_t most = 1 + random() % 30;
  for (size_t at = 0; at < text.size(); at += pieces.back().size())
    pieces.push_back(text.substr(at, 1 + random() % most));
  return pieces;
}

void expect_however_cut(const AnswerReader& reader, const std::string& text, AnswerParts wanted) {
  wanted.order = reader.read({text}).order;
  EXPECT_EQ(reader.read({text}), wanted) << text;
  for (size_t at = 1; at < text.size(); ++at)
    ASSERT_EQ(reader.read({text.substr(0, at), text.substr(at)}), wanted) << text << " cut at " << at;
  ASSERT_EQ(reader.read(pieces_of(text, 1)), wanted) << text << " by bytes";
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 30; ++i)
    ASSERT_EQ(reader.read(random_pieces(text, random)), wanted) << text << ", random pieces " << i << " of " << kSeed;
}

/// An answer may end anywhere; then too it does not matter how it came.
void expect_same_if_it_ends_early(const AnswerReader& reader, const std::string& text) {
  for (size_t end = 0; end < text.size(); ++end) {
    const std::string begun = text.substr(0, end);
    ASSERT_EQ(reader.read(pieces_of(begun, 1)), reader.read({begun})) << begun;
  }
}

class RecordedAnswers : public ::testing::TestWithParam<std::string> {};

TEST_P(RecordedAnswers, AreTakenApart) {
  const json file = json::parse(testing::file_of_tree(kCases + GetParam()));
  std::vector<std::string> templates;
  for (const json& model : file["templates"])
    templates.push_back(testing::published_template(model.get<std::string>()));
  if (file.contains("words")) templates.push_back(file["words"].get<std::string>());
  ASSERT_FALSE(templates.empty());
  for (const std::string& source : templates) {
    const auto form = find_tool_form(source, [](std::string_view) { return false; });
    ASSERT_TRUE(form.is_ok()) << form.status().message();
    EXPECT_EQ((*form)->name(), file["form"]);
    for (const json& one : file["cases"]) {
      SCOPED_TRACE(one.value("what", ""));
      const auto& text = one["text"].get_ref<const std::string&>();
      const AnswerReader reader{**form, reasoning_style_of(source), one.value("open", false), kRecordedTools};
      if (!reader.style && (reader.open || one.contains("reasoning"))) continue;  // a model that does not think
      expect_however_cut(reader, text, {one.value("reasoning", ""), one["content"], one["calls"]});
      expect_same_if_it_ends_early(reader, text);
    }
  }
}

std::vector<std::string> files() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / kCases))
    all.push_back(entry.path().filename().string());
  std::ranges::sort(all);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, RecordedAnswers, ::testing::ValuesIn(files()), [](const auto& file) {
  std::string name = file.param.substr(0, file.param.rfind('.'));
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(RecordedAnswersOf, EveryForm) {
  std::set<std::string> recorded;
  for (const std::string& name : files()) recorded.insert(json::parse(testing::file_of_tree(kCases + name))["form"]);
  for (const auto& form : all_tool_forms()) EXPECT_TRUE(recorded.contains(form->name())) << form->name();
}

}  // namespace
}  // namespace moestro::orchestrator
