// Every template of cases.json must give what Python's Jinja2 gave (scripts/make_chat_cases.py writes it).
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "orchestrator/chat/chat_template.h"
#include "tests/support/places.h"

namespace moestro {
namespace {

using Json = nlohmann::ordered_json;

Json load_cases() {
  std::ifstream in(test::source_dir() / "tests/chat/cases.json");
  return Json::parse(in, nullptr, false);
}

Result<std::string> render(const Json& file, const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.is_ok()) return parsed.status();
  const std::chrono::system_clock::time_point now{std::chrono::seconds(file.at("now").get<int64_t>())};
  return parsed->render(file.at("messages"), file.at("extra"), now);
}

TEST(ChatOracle, EveryCaseAsInJinja2) {
  const Json file = load_cases();
  ASSERT_TRUE(file.is_object()) << "no tests/chat/cases.json in " << test::source_dir();
  ASSERT_GT(file.at("cases").size(), 90u);
  for (const Json& one : file.at("cases")) {
    const auto source = one.at("template").get<std::string>();
    SCOPED_TRACE(source);
    const auto text = render(file, source);
    if (one.contains("text")) {
      ASSERT_TRUE(text.is_ok()) << text.status().message();
      EXPECT_EQ(*text, one.at("text").get<std::string>());
    } else {
      ASSERT_FALSE(text.is_ok()) << *text;
      if (one.contains("raises")) {
        EXPECT_EQ(text.status().code(), Code::kInvalidArgument);
        EXPECT_EQ(text.status().message(), one.at("raises").get<std::string>())
            << "the template's own words, alone";
      }
    }
  }
}

}  // namespace
}  // namespace moestro
