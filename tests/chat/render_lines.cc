// Renders chat templates for a program that compares them with another renderer. One JSON object a line on stdin:
//   {"template": TEXT}                                  this one from here on
//   {"now": SECONDS, "messages": LIST, "extra": DICT}   render it
// and one a line on stdout: {} for a template that parses, {"text": TEXT}, or {"code": NAME, "error": MESSAGE}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "orchestrator/chat/chat_template.h"
#include "tests/support/code_name.h"

namespace {

using Json = nlohmann::ordered_json;
using moestro::ChatTemplate;

Json failure(const moestro::Status& status) {
  return {{"code", std::string(moestro::test::code_name(status.code()))}, {"error", status.message()}};
}

Json answer(const Json& line, std::optional<ChatTemplate>& current) {
  if (const auto source = line.find("template"); source != line.end()) {
    current.reset();
    auto parsed = ChatTemplate::parse(source->get<std::string>());
    if (!parsed.is_ok()) return failure(parsed.status());
    current = std::move(*parsed);
    return Json::object();
  }
  if (!current) return {{"code", "none"}, {"error", "there is no template"}};
  const std::chrono::system_clock::time_point now{std::chrono::seconds(line.at("now").get<int64_t>())};
  const auto text = current->render(line.at("messages"), line.at("extra"), now);
  return text.is_ok() ? Json{{"text", *text}} : failure(text.status());
}

}  // namespace

int main() {
  std::optional<ChatTemplate> current;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json parsed = Json::parse(line, nullptr, false);
    if (!parsed.is_object()) {
      std::cerr << "render_lines: a line of stdin is no JSON object\n";
      return 2;
    }
    std::cout << answer(parsed, current).dump() << "\n" << std::flush;
  }
  return 0;
}
